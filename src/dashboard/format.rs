//! Numbers and times as people read them.

/// 1,234,567
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("−{text}") } else { text }
}

/// Three digits or so: 0.25, 3.1, 47, 1,234
pub fn number(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.95 {
        format!("{value:.2}")
    } else if value < 9.95 {
        format!("{value:.1}").trim_end_matches(".0").to_owned()
    } else {
        count(value.round() as i64)
    }
}

/// A time that something takes: 250 ms, 3.1 s, 5 min, 2 h 10 min, 3 d 4 h.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 0.0005 {
        return "0 ms".to_owned();
    }
    if seconds < 0.9995 {
        return format!("{} ms", (seconds * 1_000.0).round());
    }
    if seconds < 9.95 {
        return format!("{} s", format!("{seconds:.1}").trim_end_matches(".0"));
    }
    if seconds < 99.5 {
        return format!("{} s", seconds.round());
    }
    let minutes = (seconds / 60.0).round() as i64;
    let (hours, days) = (minutes / 60, minutes / (24 * 60));
    match (days, hours, minutes % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) if hours % 24 == 0 => format!("{} d", count(days)),
        (days, hours, _) => format!("{} d {} h", count(days), hours % 24),
    }
}

pub fn maybe(value: Option<f64>, form: fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), form)
}

/// 12 %, 0.4 %
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// Hour and minute, UTC.
pub fn clock(at: f64) -> String {
    let minutes = (at / 60.0).floor() as i64;
    format!("{:02}:{:02}", minutes.div_euclid(60).rem_euclid(24), minutes.rem_euclid(60))
}

/// `task`, or `tasks` unless there is one.
pub fn plural(number: i64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts: Vec<String> = [0, 999, 1_000, 1_234_567, -1_000].map(count).into();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567", "−1,000"]);
        let texts: Vec<String> = [0.0, 0.25, 3.12, 9.96, 46.8, 1_234.4].map(number).into();
        assert_eq!(texts, ["0", "0.25", "3.1", "10", "47", "1,234"]);
        let texts: Vec<String> = [0.0, 0.004, 0.1, 1.0].map(share).into();
        assert_eq!(texts, ["0 %", "0.4 %", "10 %", "100 %"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let cases = [
            (0.0, "0 ms"),
            (-3.0, "0 ms"),
            (0.25, "250 ms"),
            (0.9996, "1 s"),
            (3.12, "3.1 s"),
            (47.0, "47 s"),
            (100.0, "2 min"),
            (3_570.0, "1 h"),
            (7_800.0, "2 h 10 min"),
            (86_400.0, "1 d"),
            (100_000.0, "1 d 3 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(clock(1_796_004_000.0), "02:00");
        assert_eq!(plural(1, "task", "tasks"), "1 task");
    }
}
