//! Elements of an SVG picture. Colours, dashes and type sizes are classes of the report's style sheet, so that one picture serves
//! light and dark pages.

use std::fmt::Write;

/// Text as it stands in SVG and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where a text ends up at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// To its right.
    Start,
    /// Around it.
    Middle,
    /// To its left.
    End,
}

/// A picture being drawn; lengths are in pixels, the origin is above on the left.
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    /// An empty picture of this size.
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { body: String::new(), width, height }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ =
            write!(self.body, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
    }

    /// A line through points.
    pub fn polyline(&mut self, class: &str, points: &[[f64; 2]]) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(self.body, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }

    /// A filled rectangle that says `tip` when it is pointed at, if that is not empty.
    pub fn bar(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2], tip: &str) {
        let (open, close) = tagged(tip);
        let _ = write!(
            self.body,
            "{open}<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>{close}"
        );
    }

    /// A text whose middle line runs through the point.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" dominant-baseline=\"central\">{}</text>",
            escaped(text)
        );
    }

    /// A text that reads upwards, centred on the point.
    pub fn upright(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        let _ = write!(
            self.body,
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(text)
        );
    }

    /// A mark with a shape of its own, which says `tip` when it is pointed at.
    pub fn mark(&mut self, class: &str, shape: Shape, at: [f64; 2], tip: &str) {
        let (open, close) = tagged(tip);
        let hit = if tip.is_empty() {
            String::new()
        } else {
            format!("<circle class=\"hit\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"9\"/>", at[0], at[1])
        };
        let _ = write!(self.body, "{open}{hit}<path class=\"{class}\" d=\"{}\"/>{close}", shape.path(at));
    }

    /// The picture as an element of HTML; screen readers read `name`.
    pub fn finish(self, name: &str) -> String {
        let Svg { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\">{body}</svg>",
            escaped(name)
        )
    }
}

/// What an element stands in so that it says something when it is pointed at.
fn tagged(tip: &str) -> (String, &'static str) {
    if tip.is_empty() {
        return (String::new(), "");
    }
    (format!("<g class=\"tip\" tabindex=\"0\"><title>{}</title>", escaped(tip)), "</g>")
}

/// Shapes of marks, so that curves that lie upon each other are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A disc.
    Circle,
    /// A square.
    Square,
    /// A triangle on its base.
    Up,
    /// A square on its corner.
    Diamond,
    /// A triangle on its tip.
    Down,
    /// Two crossed strokes.
    Cross,
    /// An arrow out of the upper end of the picture.
    Arrow,
}

impl Shape {
    /// The shapes of curves, in the order in which they are used.
    pub const CURVES: [Shape; 5] = [Shape::Circle, Shape::Square, Shape::Up, Shape::Diamond, Shape::Down];

    fn path(self, [x, y]: [f64; 2]) -> String {
        let polygon = |points: &[[f64; 2]]| {
            let corners: Vec<String> = points.iter().map(|[dx, dy]| format!("{:.1} {:.1}", x + dx, y + dy)).collect();
            format!("M{}Z", corners.join("L"))
        };
        match self {
            Shape::Circle => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", x - 4.0),
            Shape::Square => polygon(&[[-3.6, -3.6], [3.6, -3.6], [3.6, 3.6], [-3.6, 3.6]]),
            Shape::Up => polygon(&[[0.0, -5.0], [4.8, 3.6], [-4.8, 3.6]]),
            Shape::Diamond => polygon(&[[0.0, -5.4], [4.6, 0.0], [0.0, 5.4], [-4.6, 0.0]]),
            Shape::Down => polygon(&[[0.0, 5.0], [4.8, -3.6], [-4.8, -3.6]]),
            Shape::Cross => {
                let [left, right, up, down] = [x - 5.0, x + 5.0, y - 5.0, y + 5.0];
                format!("M{left:.1} {up:.1}L{right:.1} {down:.1}M{left:.1} {down:.1}L{right:.1} {up:.1}")
            }
            Shape::Arrow => polygon(&[[0.0, -7.0], [6.0, 4.0], [0.0, 1.0], [-6.0, 4.0]]),
        }
    }
}
