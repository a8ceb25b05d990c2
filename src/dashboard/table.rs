//! Tables that a screen reader can walk through, and that become cards on a phone.
//!
//! The roles are written out because some browsers forget that something is a table once the style shows it
//! as something else.

use maud::{Markup, Render, html};

#[derive(Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    numeric: bool,
}

pub const fn text(title: &'static str) -> Column {
    Column { title, numeric: false }
}

pub const fn number(title: &'static str) -> Column {
    Column { title, numeric: true }
}

/// A row's cells; the first one names the row.
pub type Row = Vec<Markup>;

/// A cell's content.
pub fn cell(content: impl Render) -> Markup {
    html! { (content) }
}

/// A table, or the sentence `nothing` where there are no rows. `more` says what is left out.
pub fn table(
    caption: &str,
    columns: &[Column],
    rows: Vec<Row>,
    nothing: &str,
    more: Option<String>,
) -> Markup {
    if rows.is_empty() {
        return html! { p.nothing { (nothing) } };
    }
    html! {
        table role="table" {
            caption { (caption) }
            thead role="rowgroup" {
                tr role="row" {
                    @for column in columns {
                        th.num[column.numeric] role="columnheader" scope="col" { (column.title) }
                    }
                }
            }
            tbody role="rowgroup" {
                @for row in rows {
                    tr role="row" {
                        @for (at, (column, content)) in columns.iter().zip(row).enumerate() {
                            @if at == 0 {
                                th role="rowheader" scope="row" { (content) }
                            } @else {
                                td.num[column.numeric] role="cell" data-label=(column.title) { (content) }
                            }
                        }
                    }
                }
            }
        }
        @if let Some(more) = more { p.more { (more) } }
    }
}

/// How many there are beside those shown.
pub fn left_out(shown: usize, in_all: usize, what: &str) -> Option<String> {
    (in_all > shown)
        .then(|| format!("{} more {what} not shown.", super::format::count((in_all - shown) as i64)))
}

/// A word that marks something, with the severity in the colour and in the word.
pub fn badge(kind: &'static str, text: impl Render) -> Markup {
    html! { span class=(format!("badge {kind}")) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let rows = vec![vec![cell("<script>alert(1)</script>"), cell("\"><img src=x onerror=alert(1)>")]];
        let html = table("T & U", &[text("Queue"), number("n")], rows, "nothing", None).into_string();
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(html.contains("&quot;&gt;&lt;img src=x onerror=alert(1)&gt;"));
        assert!(!html.contains("<script") && !html.contains("<img"));
        assert!(html.contains("<caption>T &amp; U</caption>"));
        for role in ["table", "rowgroup", "row", "columnheader", "rowheader", "cell"] {
            assert!(html.contains(&format!("role=\"{role}\"")), "{role}");
        }
    }

    #[test]
    fn an_empty_table_is_a_sentence() {
        assert_eq!(
            table("T", &[text("a")], vec![], "No dead letters.", None).into_string(),
            "<p class=\"nothing\">No dead letters.</p>"
        );
        assert_eq!(left_out(2, 2, "queues"), None);
        assert_eq!(left_out(2, 1_002, "queues").as_deref(), Some("1,000 more queues not shown."));
    }
}
