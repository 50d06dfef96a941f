/// Chunk numbers per leaf of the directory.
const LEAF: usize = 512;
/// Chunks per allocation while a file has few.
const SEGMENT: usize = 32;
/// Chunks per allocation from this many on: memory that comes by the MiB takes an eighth of the system calls.
const LARGE_SEGMENT: usize = 256;
const CHUNK_MIN: usize = 128;
const CHUNK_MAX: usize = 4096;

/// Bytes of which most were never written: those read as zeros and take no memory. Overwriting allocates nothing.
///
/// Chunks lie in large segments and are found through a two-level table. They are as large as the first write, because the
/// pages of one file have one size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparse {
    /// Bytes per chunk; zero until the first write.
    chunk: usize,
    /// One more than the chunk's number, or zero where nothing was written.
    directory: Vec<Option<Box<[u32; LEAF]>>>,
    segments: Vec<Box<[u8]>>,
    free: Vec<u32>,
    used: u32,
}

impl Sparse {
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        if self.chunk == 0 {
            return buffer.fill(0);
        }
        let mut done = 0;
        while done < buffer.len() {
            let (index, start, length) = self.piece(offset + done as u64, buffer.len() - done);
            let target = &mut buffer[done..done + length];
            match self.lookup(index) {
                Some(chunk) => target.copy_from_slice(&self.bytes(chunk)[start..start + length]),
                None => target.fill(0),
            }
            done += length;
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        if self.chunk == 0 {
            self.chunk = data.len().next_power_of_two().clamp(CHUNK_MIN, CHUNK_MAX);
        }
        let mut done = 0;
        while done < data.len() {
            let (index, start, length) = self.piece(offset + done as u64, data.len() - done);
            let chunk = self.lookup(index).unwrap_or_else(|| self.insert(index));
            self.bytes_mut(chunk)[start..start + length].copy_from_slice(&data[done..done + length]);
            done += length;
        }
    }

    /// Forgets everything from `length` on.
    pub(crate) fn truncate(&mut self, length: u64) {
        if self.chunk == 0 {
            return;
        }
        let chunk_size = self.chunk as u64;
        let end = self.directory.len() as u64 * LEAF as u64;
        let inside = (length % chunk_size) as usize;
        if inside > 0
            && let Some(chunk) = self.lookup(length / chunk_size)
        {
            self.bytes_mut(chunk)[inside..].fill(0);
        }
        let mut index = length.div_ceil(chunk_size);
        while index < end {
            let leaf = index as usize / LEAF;
            let Some(entries) = &mut self.directory[leaf] else {
                index = (leaf as u64 + 1) * LEAF as u64;
                continue;
            };
            let entry = std::mem::take(&mut entries[index as usize % LEAF]);
            self.free.extend(entry.checked_sub(1));
            index += 1;
        }
    }

    /// The chunk that holds `offset`, where in the chunk it lies, and how many of `left` bytes the chunk holds from there.
    fn piece(&self, offset: u64, left: usize) -> (u64, usize, usize) {
        let shift = self.chunk.trailing_zeros();
        let start = offset as usize & (self.chunk - 1);
        (offset >> shift, start, left.min(self.chunk - start))
    }

    fn lookup(&self, index: u64) -> Option<u32> {
        let leaf = self.directory.get(index as usize / LEAF)?.as_ref()?;
        leaf[index as usize % LEAF].checked_sub(1)
    }

    fn insert(&mut self, index: u64) -> u32 {
        let chunk = match self.free.pop() {
            Some(chunk) => {
                self.bytes_mut(chunk).fill(0);
                chunk
            }
            None => {
                let (segment, _) = Self::place(self.used);
                if segment == self.segments.len() {
                    let chunks = if self.used as usize >= LARGE_SEGMENT { LARGE_SEGMENT } else { SEGMENT };
                    self.segments.push(vec![0; chunks * self.chunk].into_boxed_slice());
                }
                self.used += 1;
                self.used - 1
            }
        };
        let leaf = index as usize / LEAF;
        if self.directory.len() <= leaf {
            self.directory.resize(leaf + 1, None);
        }
        self.directory[leaf].get_or_insert_with(|| Box::new([0; LEAF]))[index as usize % LEAF] = chunk + 1;
        chunk
    }

    /// The segment of a chunk, and how many chunks come before it there.
    fn place(chunk: u32) -> (usize, usize) {
        let chunk = chunk as usize;
        match chunk.checked_sub(LARGE_SEGMENT) {
            None => (chunk / SEGMENT, chunk % SEGMENT),
            Some(beyond) => (LARGE_SEGMENT / SEGMENT + beyond / LARGE_SEGMENT, beyond % LARGE_SEGMENT),
        }
    }

    fn bytes(&self, chunk: u32) -> &[u8] {
        let (segment, before) = Self::place(chunk);
        &self.segments[segment][before * self.chunk..(before + 1) * self.chunk]
    }

    fn bytes_mut(&mut self, chunk: u32) -> &mut [u8] {
        let (segment, before) = Self::place(chunk);
        &mut self.segments[segment][before * self.chunk..(before + 1) * self.chunk]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn behaves_like_a_plain_array() {
        for seed in 0..20 {
            let mut random = Random::stream(seed, "sparse");
            let mut plain = vec![0u8; 300_000];
            let mut sparse = Sparse::default();
            for _ in 0..200 {
                let length = random.between(1, 9_000) as usize;
                let offset = random.below((plain.len() - length) as u64) as usize;
                match random.below(8) {
                    0 => {
                        plain[offset..].fill(0);
                        sparse.truncate(offset as u64);
                    }
                    1..4 => {
                        let mut data = vec![0; length];
                        random.fill(&mut data);
                        plain[offset..offset + length].copy_from_slice(&data);
                        sparse.write(offset as u64, &data);
                    }
                    _ => {
                        let mut data = vec![1; length];
                        sparse.read(offset as u64, &mut data);
                        assert_eq!(data, plain[offset..offset + length]);
                    }
                }
            }
        }
    }

    #[test]
    fn memory_follows_what_was_touched() {
        let mut sparse = Sparse::default();
        for page in 0..1_000u64 {
            sparse.write(page * 128 * 5_000, &[7; 128]);
        }
        assert_eq!(sparse.chunk, 128);
        let large = (1_000 - LARGE_SEGMENT).div_ceil(LARGE_SEGMENT);
        let expected = LARGE_SEGMENT / SEGMENT + large;
        assert_eq!(sparse.segments.len(), expected, "no segment is begun before the last is full");
    }
}
