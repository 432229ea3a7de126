//! Draws the figures of a workload: bars side by side, and below them how the times of single calls
//! are spread.

use std::fmt::Write;

use crate::report::{Curve, Report, Row};

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 20.0;
/// Where bars begin, after their names.
const BARS_FROM: f64 = 320.0;
const BARS_WIDTH: f64 = 330.0;
const ROW_HEIGHT: f64 = 44.0;
const BAR_HEIGHT: f64 = 15.0;
const HEAD_HEIGHT: f64 = 58.0;
const PLOT_HEIGHT: f64 = 220.0;
const PLOT_FROM: f64 = 80.0;
const PLOT_WIDTH: f64 = 480.0;
const OURS: &str = "#1f6f8b";
const THEIRS: &str = "#b8b8b8";

/// Told apart also without colours: each has its own dashes.
const LINES: [(&str, &str); 6] = [
    ("#1f6f8b", ""),
    ("#d1495b", "6 3"),
    ("#6a994e", "2 3"),
    ("#7b5ea7", "10 4 2 4"),
    ("#c77d1e", "12 3"),
    ("#555555", "1 4"),
];

/// The drawing of a workload; none if nothing was measured.
pub fn draw(report: &Report, workload: &str) -> Option<String> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.workload == workload).collect();
    let curves: Vec<&Curve> =
        report.curves.iter().filter(|curve| curve.workload == workload).collect();
    if rows.is_empty() {
        return None;
    }
    let bars_end = HEAD_HEIGHT + rows.len() as f64 * ROW_HEIGHT;
    let height = bars_end + if curves.is_empty() { MARGIN } else { PLOT_HEIGHT + 90.0 };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, (MARGIN, 28.0), &format!("legwork bench: {workload}"), "font-size=\"17\"");
    key(&mut svg, (BARS_FROM, OURS), "legwork");
    if rows.iter().any(|row| row.raw.is_some()) {
        key(&mut svg, (BARS_FROM + 110.0, THEIRS), "what it is compared with");
    }
    for (place, row) in rows.iter().enumerate() {
        bars(&mut svg, HEAD_HEIGHT + place as f64 * ROW_HEIGHT, row, most(&rows, row.unit));
    }
    if !curves.is_empty() {
        plot(&mut svg, bars_end + 40.0, &curves);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// The largest figure of this unit: all bars of a unit have one scale.
fn most(rows: &[&Row], unit: &str) -> f64 {
    let same = rows.iter().filter(|row| row.unit == unit);
    same.flat_map(|row| [row.legwork, row.raw.unwrap_or(0.0)]).fold(f64::MIN_POSITIVE, f64::max)
}

fn bars(svg: &mut String, top: f64, row: &Row, most: f64) {
    text(svg, (MARGIN, top + 20.0), &row.what, "");
    bar(svg, (top + 2.0, OURS), row.legwork / most, &figure(row.legwork, row.unit));
    if let Some(raw) = row.raw {
        bar(svg, (top + 4.0 + BAR_HEIGHT, THEIRS), raw / most, &figure(raw, row.unit));
        let ratio = format!("{:.2}", row.legwork / raw);
        text(svg, (WIDTH - 100.0, top + 20.0), &ratio, "font-weight=\"bold\"");
    }
    if !row.hold.is_empty() {
        let hold = format!("hold {}", row.hold);
        text(svg, (WIDTH - 100.0, top + 36.0), &hold, "fill=\"#666\" font-size=\"11\"");
    }
}

fn bar(svg: &mut String, (top, colour): (f64, &str), share: f64, label: &str) {
    let width = (share * BARS_WIDTH).max(1.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{BARS_FROM}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{colour}\"/>"
    );
    text(svg, (BARS_FROM + width + 5.0, top + 12.0), label, "font-size=\"11\"");
}

fn key(svg: &mut String, (left, colour): (f64, &str), label: &str) {
    let _ =
        writeln!(svg, "<rect x=\"{left}\" y=\"18\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
    text(svg, (left + 17.0, 28.0), label, "");
}

/// Curves over the share of the calls: the flatter, the more alike they are.
fn plot(svg: &mut String, top: f64, curves: &[&Curve]) {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let most = points.map(|(_, micros)| *micros).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let across = |share: f64| PLOT_FROM + share * PLOT_WIDTH;
    let down = |micros: f64| top + PLOT_HEIGHT * (1.0 - micros / most);
    text(
        svg,
        (MARGIN, top - 14.0),
        "time of a call, and the share of the calls that took less",
        "",
    );
    for part in 0..=4 {
        let part = f64::from(part) / 4.0;
        line(svg, (PLOT_FROM, down(part * most)), (across(1.0), down(part * most)));
        let label = figure(part * most, "us");
        let style = "text-anchor=\"end\" font-size=\"11\"";
        text(svg, (PLOT_FROM - 6.0, down(part * most) + 4.0), &label, style);
        let label = format!("{:.0} %", part * 100.0);
        let style = "text-anchor=\"middle\" font-size=\"11\"";
        text(svg, (across(part), top + PLOT_HEIGHT + 18.0), &label, style);
    }
    for (place, (curve, (colour, dashes))) in curves.iter().zip(LINES.iter().cycle()).enumerate() {
        let points: Vec<String> = (curve.points.iter())
            .map(|(share, micros)| format!("{:.1},{:.1}", across(*share), down(*micros)))
            .collect();
        let style = format!("stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" stroke-width=\"2\"");
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" "));
        let height = top + 14.0 + place as f64 * 20.0;
        let left = across(1.0) + 20.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{height}\" x2=\"{}\" y2=\"{height}\" {style}/>",
            left + 30.0
        );
        text(svg, (left + 38.0, height + 4.0), &curve.what, "");
    }
}

fn line(svg: &mut String, (left, top): (f64, f64), (right, bottom): (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{left}\" y1=\"{top:.1}\" x2=\"{right}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(svg: &mut String, (left, top): (f64, f64), text: &str, style: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{left:.1}\" y=\"{top:.1}\" {style}>{text}</text>");
}

/// With as many digits as can be read.
fn figure(figure: f64, unit: &str) -> String {
    match figure {
        long if unit == "us" && long >= 10_000.0 => format!("{:.1} ms", long / 1000.0),
        large if large >= 100.0 => format!("{large:.0} {unit}"),
        small if small < 10.0 => format!("{small:.2} {unit}"),
        middle => format!("{middle:.1} {unit}"),
    }
}
