//! Plots as inline SVG, without script and without anything from elsewhere.
//!
//! [`Plot::svg`] makes one `svg` element; marks carry their figures as titles, which a browser shows under the
//! pointer. Lengths are pixels of a box of 720 x 320.
//!
//! Source: W3C SVG 2 (in HTML, elements need no name space).
#![expect(clippy::float_arithmetic, reason = "places on a page")]

use std::fmt::Write as _;

pub use weft_base::markup::escape;

/// Size of the box, and margins of the plot in it: pixels of the `viewBox`.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Number of colours: classes c0 to c7 and l0 to l7 of the page's style.
const COLOURS: usize = 8;

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Bars side by side for each place on the x axis.
    Bars,
    /// A line with marks for each series.
    Lines,
    /// A line for each series, with marks that show only under the pointer.
    Curves,
    /// Bars on top of each other for each place on the x axis.
    Stacked,
}

/// A series of values, in one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Place on the x axis (0.0 to 1.0), value, and the figure in words.
    pub points: Vec<(f64, f64, String)>,
}

#[derive(Clone, Debug)]
pub struct Plot {
    /// Description for readers who cannot see the plot.
    pub title: String,
    /// Label of the x axis, with the unit.
    pub x_label: &'static str,
    /// Label of the y axis, with the unit.
    pub y_label: &'static str,
    /// Places on the x axis (0.0 to 1.0) and their labels.
    pub x_ticks: Vec<(f64, String)>,
    pub series: Vec<Series>,
    pub draw: Draw,
    /// Whether the y axis is logarithmic: for values above 0.
    pub log: bool,
}

/// Middle of place `index` of `count` on an x axis of names.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a few places")]
pub fn place(index: usize, count: usize) -> f64 {
    (index as f64 + 0.5) / count.max(1) as f64
}

/// The y axis: its ends (decades if `log`) and marks.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        if log {
            let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            // Without a value above 0, `least` is infinite.
            let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
            let (low, high) = (least.log10().floor(), most.log10().ceil());
            // All values in one decade: its ends could be the same mark.
            let high = if high > low { high } else { low + 1.0 };
            let mut ticks = vec![];
            let mut tick = low;
            while tick <= high {
                ticks.push(10f64.powf(tick));
                tick += 1.0;
            }
            return Self { low, high, log, ticks };
        }
        let most = if most > 0.0 { most } else { 1.0 };
        let magnitude = 10f64.powf((most / 5.0).log10().floor());
        // Round steps, at most five of them up to the largest value.
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| most / step <= 5.0).unwrap_or(most);
        let mut ticks = vec![0.0];
        // The bound ends the loop also for a value that no mark reaches, such as infinity.
        while ticks.last().is_some_and(|last| *last < most) && ticks.len() < 12 {
            ticks.push(ticks.last().copied().unwrap_or(0.0) + step);
        }
        Self { low: 0.0, high: ticks.last().copied().unwrap_or(most), log, ticks }
    }

    /// Height of `value`, in pixels from the top.
    fn y(&self, value: f64) -> f64 {
        // 0 has no logarithm; it is drawn at the foot of the plot.
        let value = if self.log { value.max(1e-300).log10() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)
    }
}

fn x(place: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * place
}

/// A label of the axis, such as 1.5 M for 1,500,000.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let digits = format!("{value:.3}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

impl Plot {
    /// The plot as one `svg` element.
    #[must_use]
    pub fn svg(&self) -> String {
        let values = self.series.iter().flat_map(|series| series.points.iter().map(|p| p.1));
        // Stacked bars: the height that earlier series have reached at each place.
        let mut floors = vec![0.0; self.x_ticks.len()];
        let scale = if self.draw == Draw::Stacked {
            let sum =
                |at: usize| self.series.iter().filter_map(|s| s.points.get(at)).map(|p| p.1).sum();
            let sums: Vec<f64> = (0..self.x_ticks.len()).map(sum).collect();
            Scale::new(sums.iter().copied(), self.log)
        } else {
            Scale::new(values, self.log)
        };
        let mut out = String::new();
        // writing into text cannot fail
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        self.axes(&scale, &mut out);
        for (index, series) in self.series.iter().enumerate() {
            match self.draw {
                Draw::Bars => self.bars(index, series, &scale, &mut out),
                Draw::Lines => line(index, series, &scale, &mut out, false),
                Draw::Curves => line(index, series, &scale, &mut out, true),
                Draw::Stacked => self.stack(index, series, &scale, &mut floors, &mut out),
            }
            // The legend has a line of 18 pixels for each series: `place` is index + 0.5 here.
            let y = TOP + 14.0 + 18.0 * place(index, 1);
            let (box_x, text_x, class) =
                (WIDTH - RIGHT + 12.0, WIDTH - RIGHT + 30.0, index % COLOURS);
            let (name, whole) = (escape(&fitting(&series.name)), escape(&series.name));
            let _ = write!(
                out,
                "<rect class=\"c{class}\" x=\"{box_x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>\
                 <text x=\"{text_x:.1}\" y=\"{y:.1}\">{name}<title>{whole}</title></text>",
                y - 10.0
            );
        }
        out.push_str("</svg>");
        out
    }

    fn axes(&self, scale: &Scale, out: &mut String) {
        let (left, right, floor) = (x(0.0), x(1.0), HEIGHT - BOTTOM);
        for tick in &scale.ticks {
            let (y, label) = (scale.y(*tick), short(*tick));
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        for (place, label) in &self.x_ticks {
            let label = escape(label);
            let _ = write!(
                out,
                "<text class=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                x(*place),
                floor + 18.0
            );
        }
        let middle = TOP + (floor - TOP) / 2.0;
        let _ = write!(
            out,
            "<text class=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"middle\" transform=\"rotate(-90 14 {middle:.1})\" x=\"14\" \
             y=\"{middle:.1}\">{}</text>",
            x(0.5),
            HEIGHT - 8.0,
            escape(self.x_label),
            escape(self.y_label)
        );
    }

    #[expect(clippy::cast_precision_loss, reason = "a few bars")]
    fn stack(
        &self,
        index: usize,
        series: &Series,
        scale: &Scale,
        floors: &mut [f64],
        out: &mut String,
    ) {
        let width = (x(1.0) - x(0.0)) / self.x_ticks.len().max(1) as f64 * 0.7;
        for ((place, value, words), floor) in series.points.iter().zip(floors) {
            let (from, to) = (*floor, *floor + *value);
            *floor = to;
            let (y, bottom) = (scale.y(to), scale.y(from));
            let _ = write!(
                out,
                "<rect class=\"c{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\"><title>{}</title></rect>",
                index % COLOURS,
                x(*place) - width / 2.0,
                bottom - y,
                escape(words)
            );
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a few bars")]
    fn bars(&self, index: usize, series: &Series, scale: &Scale, out: &mut String) {
        let group = (x(1.0) - x(0.0)) / self.x_ticks.len().max(1) as f64 * 0.8;
        let width = group / self.series.len().max(1) as f64;
        let (floor, class) = (HEIGHT - BOTTOM, index % COLOURS);
        for (place, value, words) in &series.points {
            let (at, y) = (x(*place) - group / 2.0 + width * index as f64, scale.y(*value));
            let _ = write!(
                out,
                "<rect class=\"c{class}\" x=\"{at:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{}</title></rect>",
                // A pixel of gap between bars, but never no bar.
                (width - 1.0).max(1.0),
                (floor - y).max(0.0),
                escape(words)
            );
        }
    }
}

/// A name cut to the room that the legend has.
fn fitting(name: &str) -> String {
    const ROOM: usize = 20;
    if name.chars().count() <= ROOM {
        return name.to_owned();
    }
    name.chars().take(ROOM - 1).chain(['\u{2026}']).collect()
}

fn line(index: usize, series: &Series, scale: &Scale, out: &mut String, hidden: bool) {
    let class = index % COLOURS;
    let at = |(place, value, _): &(f64, f64, String)| (x(*place), scale.y(*value));
    let path: Vec<_> =
        series.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(out, "<polyline class=\"l{class}\" points=\"{}\"/>", path.join(" "));
    // Class h is transparent until the pointer is over it.
    let mark = if hidden { "h".to_owned() } else { format!("c{class}") };
    for point in &series.points {
        let (x, y) = at(point);
        let _ = write!(
            out,
            "<circle class=\"{mark}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}</title></circle>",
            escape(&point.2)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_hold_all_values() {
        #[rustfmt::skip] // columns: values, logarithmic, marks
        let cases: [(&[f64], _, &[f64]); 5] = [
            (&[0.0, 4.2],       false, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            (&[1_488_095.0],    false, &[0.0, 500_000.0, 1_000_000.0, 1_500_000.0]),
            (&[],               false, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
            (&[900.0, 25_000.0], true, &[100.0, 1_000.0, 10_000.0, 100_000.0]),
            (&[],               true,  &[1.0, 10.0]),
        ];
        for (values, log, want) in cases {
            let scale = Scale::new(values.iter().copied(), log);
            assert_eq!(scale.ticks.len(), want.len(), "{values:?}: {:?}", scale.ticks);
            for (had, want) in scale.ticks.iter().zip(want) {
                assert!(
                    (had / want.max(1e-9) - 1.0).abs() < 1e-9 || *had < 1e-9,
                    "{:?}",
                    scale.ticks
                );
            }
        }
    }

    #[test]
    fn heights_are_in_proportion() {
        let scale = Scale::new([0.0, 10.0].into_iter(), false);
        let (floor, half, top) = (scale.y(0.0), scale.y(5.0), scale.y(10.0));
        assert!((floor - (HEIGHT - BOTTOM)).abs() < 1e-9 && (top - TOP).abs() < 1e-9);
        assert!((half - f64::midpoint(floor, top)).abs() < 1e-9);
        let scale = Scale::new([10.0, 1_000.0].into_iter(), true);
        let middle = f64::midpoint(scale.y(10.0), scale.y(1_000.0));
        assert!((scale.y(100.0) - middle).abs() < 1e-9, "a decade is a decade");
    }

    #[test]
    fn figures_are_short() {
        for (value, want) in [(0.0, "0"), (1_500_000.0, "1.5 M"), (250.0, "250"), (0.25, "0.25")] {
            assert_eq!(short(value), want);
        }
    }
}
