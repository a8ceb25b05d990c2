//! The page around the parts.

use super::chart::chart;
use super::data::Board;
use super::format::plural;
use super::sections;
use super::table::badge;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

pub fn page(board: &Board) -> Markup {
    let parts: [(&str, &str, Markup); 9] = [
        ("health", "Health", sections::health(board)),
        ("now", "Now", html! { (sections::totals(board)) (curves(board)) }),
        ("queues", "Queues", sections::queues(board)),
        ("types", "Types", sections::types(board)),
        ("errors", "Errors", sections::errors(board)),
        ("dead", "Dead letters", sections::dead(board)),
        ("running", "Running", sections::running(board)),
        ("workers", "Workers", sections::workers(board)),
        ("keeper", "Keeper", sections::duties(board)),
    ];
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Otherwise a browser asks the server for a picture, which would make another board.
                link rel="icon" href="data:,";
                title { "Queues of " (board.database) " · taskq" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#health" { "Skip to the content" }
                header {
                    div {
                        h1 { "Queues of " (board.database) }
                        p.note { "As of " time datetime=(format!("{}Z", board.at_text.replace(' ', "T"))) { (board.at_text) " UTC" } }
                    }
                    (verdict(board))
                }
                nav aria-label="Parts of the board" {
                    ul { @for (id, name, _) in &parts { li { a href=(format!("#{id}")) { (name) } } } }
                }
                main {
                    @for (id, name, content) in &parts {
                        section id=(id) aria-labelledby=(format!("{id}-title")) {
                            h2 id=(format!("{id}-title")) { (name) }
                            (content)
                        }
                    }
                }
                footer { p.note { "taskq " (board.version) ". A page of one moment: load it again for another one." } }
            }
        }
    }
}

/// One line that says whether somebody must look further.
fn verdict(board: &Board) -> Markup {
    let (failing, open) = sections::troubles(board);
    let mut words = Vec::new();
    if failing > 0 {
        words.push(plural(failing as i64, "check fails", "checks fail"));
    }
    if open > 0 {
        words.push(plural(open as i64, "alert is open", "alerts are open"));
    }
    html! {
        p.verdict {
            @if words.is_empty() { (badge("good", "All well")) } @else { (badge("bad", words.join(", "))) }
        }
    }
}

fn curves(board: &Board) -> Markup {
    html! {
        div.pair {
            (chart("hour-title", "Ready tasks in the last hour", &board.hour_of(None), "minute"))
            (chart("day-title", "Ready tasks in the last day", &board.day, "15 minutes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "<script>alert('x')</script>\"onload=\"alert(1)";

    fn board() -> Board {
        let name = serde_json::to_string(EVIL).unwrap_or_default();
        let text = include_str!("sample.json").replace("\"NAME\"", &name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("sample.json: {error}"))
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let html = page(&board()).into_string();
        assert!(!html.contains("<script") && !html.contains("\"onload="), "{html}");
        assert!(
            html.matches("&lt;script&gt;alert('x')&lt;/script&gt;&quot;onload=&quot;alert(1)").count() > 10
        );
    }

    #[test]
    fn it_needs_nothing_from_elsewhere() {
        let html = page(&board()).into_string();
        for part in ["src=", "url(", "@import", "<link", "<iframe", "http:", "https:"] {
            let found = html
                .replace("xmlns=\"http://www.w3.org/2000/svg\"", "")
                .replace("<link rel=\"icon\" href=\"data:,\">", "");
            assert!(!found.contains(part), "{part}");
        }
    }

    #[test]
    fn ids_are_unique_and_each_part_is_linked() {
        let html = page(&board()).into_string();
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        for link in html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(ids.contains(&link), "{link}");
        }
        assert_eq!(html.matches("<h1>").count(), 1);
    }

    #[test]
    fn trouble_is_named_at_the_top() {
        let mut board = board();
        assert!(verdict(&board).into_string().contains("1 check fails, 1 alert is open"));
        board.health.clear();
        board.alerts.clear();
        assert!(verdict(&board).into_string().contains("All well"));
    }
}
