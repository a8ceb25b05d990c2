//! Curves, drawn as SVG by the `svg` crate.
//!
//! The picture is stretched to the width that is there, so its text stands beside it, in HTML: it stays readable on a
//! phone. The `svg` crate does not escape quotation marks in attributes: text from outside must not get into one.

use super::format::{clock, count, number};
use super::table::{self, cell, table};
use maud::{Markup, PreEscaped, html};
use svg::node::element::{Description, Line, Path, Title, path};
use svg::{Document, Node};

/// A value for each moment; None: nobody knows.
pub type Curve = [(f64, Option<f64>)];

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// The runs of known values, each as its places on the picture.
fn pieces(curve: &Curve, top: f64, width: f64, height: f64) -> Vec<Vec<(f64, f64)>> {
    let step = width / (curve.len().max(2) - 1) as f64;
    let mut pieces = vec![Vec::new()];
    for (nth, (_, value)) in curve.iter().enumerate() {
        match (value, pieces.last_mut()) {
            (Some(value), Some(piece)) => {
                let round = |x: f64| (x * 10.0).round() / 10.0;
                piece.push((round(nth as f64 * step), round(height - value / top * height)));
            }
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// The curve, and the area under it.
fn paths(curve: &Curve, top: f64, width: f64, height: f64) -> (path::Data, path::Data) {
    let (mut line, mut area) = (path::Data::new(), path::Data::new());
    for piece in pieces(curve, top, width, height) {
        let (Some(first), Some(last)) = (piece.first(), piece.last()) else { continue };
        area = area.move_to((first.0, height));
        line = line.move_to(*first);
        for point in &piece {
            line = line.line_to(*point);
            area = area.line_to(*point);
        }
        area = area.line_to((last.0, height)).close();
    }
    (line, area)
}

/// The next number above that people count with: 1, 2 or 5 and zeros; at least 2, so that half of it is one, too.
fn round_up(value: f64) -> f64 {
    let mut unit = 1.0;
    loop {
        for round in [2.0, 4.0, 10.0] {
            if value <= round * unit {
                return round * unit;
            }
        }
        unit *= 10.0;
    }
}

fn document(width: f64, height: f64, title: &str, description: Option<&str>) -> Document {
    let mut document = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("preserveAspectRatio", "none")
        .set("role", "img")
        .add(Title::new(title));
    if let Some(description) = description {
        document.append(Description::new().add(svg::node::Text::new(description)));
    }
    document
}

/// What the curve says, in a sentence or two.
pub fn in_words(curve: &Curve) -> String {
    let known: Vec<(f64, f64)> = curve.iter().filter_map(|(at, value)| Some((*at, (*value)?))).collect();
    let Some(((_, last), first)) = known.last().copied().zip(known.first()) else {
        return "No samples yet.".to_owned();
    };
    // The latest of the highest: what people ask is how long it has been going down.
    let (at, most) = known.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0.0, 0.0));
    let mut words = if most == 0.0 {
        "No task was ready at any of these moments.".to_owned()
    } else {
        format!(
            "{} at the end, {} at most (at {} UTC), {} at the beginning.",
            number(last),
            number(most),
            clock(at),
            number(first.1)
        )
    };
    if known.len() < curve.len() {
        words += " Gaps: nothing is known of that time.";
    }
    words
}

/// A large chart with axes, a sentence, and a table of the values. `id` is unique in the page.
pub fn chart(id: &'static str, title: &'static str, curve: &Curve, every: &'static str) -> Markup {
    let words = in_words(curve);
    let highest = curve.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let top = round_up(highest);
    let (line, area) = paths(curve, top, WIDTH, HEIGHT);
    let mut document = document(WIDTH, HEIGHT, title, Some(&words)).set("class", "plot");
    for share in [0.0, 0.5, 1.0] {
        let y = HEIGHT * share;
        document
            .append(Line::new().set("class", "grid").set("x1", 0).set("x2", WIDTH).set("y1", y).set("y2", y));
    }
    document.append(Path::new().set("class", "area").set("d", area));
    document.append(Path::new().set("class", "line").set("d", line));
    let ticks: Vec<String> = (0..=4)
        .filter_map(|n| curve.get((curve.len().saturating_sub(1)) * n / 4))
        .map(|(at, _)| clock(*at))
        .collect();
    let rows = curve.iter().rev().step_by(curve.len().div_ceil(16).max(1)).map(|(at, value)| {
        vec![
            cell(clock(*at)),
            cell(value.map_or_else(|| "not known".to_owned(), |value| count(value as i64))),
        ]
    });
    html! {
        figure aria-labelledby=(id) {
            h3 id=(id) { (title) }
            div.frame {
                div.y aria-hidden="true" { span { (number(top)) } span { (number(top / 2.0)) } span { "0" } }
                (PreEscaped(document.to_string()))
                div.x aria-hidden="true" { @for tick in ticks { span { (tick) } } }
            }
            figcaption { (words) " A value every " (every) "." }
            details {
                summary { "As a table" }
                (table(title, &[table::text("Time (UTC)"), table::number("Ready tasks")], rows.collect(), "", None))
            }
        }
    }
}

/// A small curve for a row of a table.
pub fn sparkline(curve: &Curve) -> Markup {
    let (width, height) = (100.0, 24.0);
    let highest = curve.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let (line, area) = paths(curve, highest.max(1.0), width, height);
    let title = format!("Ready tasks in the last hour: {}", in_words(curve));
    let document = document(width, height, &title, None)
        .set("class", "spark")
        .add(Path::new().set("class", "area").set("d", area))
        .add(Path::new().set("class", "line").set("d", line));
    html! { (PreEscaped(document.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_with_a_round_number() {
        let tops: Vec<f64> = [0.0, 1.0, 2.0, 3.0, 7.0, 11.0, 4_001.0, 1e6].map(round_up).into();
        assert_eq!(tops, [2.0, 2.0, 2.0, 4.0, 10.0, 20.0, 10_000.0, 1e6]);
    }

    #[test]
    fn a_curve_has_gaps_where_nothing_is_known() {
        let curve = [(0.0, Some(0.0)), (60.0, Some(10.0)), (120.0, None), (180.0, Some(5.0))];
        assert_eq!(
            pieces(&curve, 10.0, 300.0, 100.0),
            vec![vec![(0.0, 100.0), (100.0, 0.0)], vec![(300.0, 50.0)]]
        );
        assert_eq!(
            in_words(&curve),
            "5 at the end, 10 at most (at 00:01 UTC), 0 at the beginning. Gaps: nothing is known of that time."
        );
        assert_eq!(in_words(&[]), "No samples yet.");
        assert_eq!(in_words(&[(0.0, None)]), "No samples yet.");
        assert_eq!(in_words(&[(0.0, Some(0.0))]), "No task was ready at any of these moments.");
    }

    #[test]
    fn a_chart_has_a_name_a_description_and_a_table() {
        let curve: Vec<(f64, Option<f64>)> =
            (0..60).map(|n| (f64::from(n) * 60.0, Some(f64::from(n)))).collect();
        let html = chart("c", "The last hour", &curve, "minute").into_string();
        for part in [
            "<title>The last hour</title>",
            "<desc>",
            "role=\"img\"",
            "<figcaption>59 at the end",
            "<summary>As a table",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(html.matches("<tr role=\"row\">").count(), 16);
        assert!(!html.contains("NaN") && !chart("c", "x", &[], "minute").into_string().contains("NaN"));
    }
}
