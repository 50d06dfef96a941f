// The page reads without this: it shows a mark's text at once, fades the other curves of a legend's entry, and filters claims.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const show = (event) => {
    const mark = event.target.closest("svg .tip");
    tip.hidden = !mark;
    if (!mark) return;
    const title = mark.querySelector("title");
    if (title) {
      mark.dataset.tip = title.textContent;
      title.remove();
      mark.setAttribute("aria-label", mark.dataset.tip);
    }
    tip.textContent = mark.dataset.tip;
    const box = mark.getBoundingClientRect();
    const left = Math.min(box.right + 8, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left) + scrollX}px`;
    tip.style.top = `${box.top + scrollY - tip.offsetHeight - 6}px`;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  for (const entry of document.querySelectorAll(".legend li")) {
    const [place, hollow] = entry.dataset.curve.split(" ");
    const shapes = entry.closest("figure").querySelectorAll(".wide > svg .curve, .wide > svg .mark, .wide > svg .fill, .wide > svg .interval, .wide > svg .paper, .wide > svg .cross");
    const isOwn = (shape) => shape.classList.contains(place) && shape.classList.contains("hollow") === Boolean(hollow);
    entry.addEventListener("pointerenter", () => shapes.forEach((shape) => shape.classList.toggle("dim", !isOwn(shape))));
    entry.addEventListener("pointerleave", () => shapes.forEach((shape) => shape.classList.remove("dim")));
  }
  const differs = document.getElementById("differs");
  if (differs) {
    const claims = document.querySelector(".claims");
    differs.addEventListener("change", () => claims.classList.toggle("filtered", differs.checked));
  }
})();
