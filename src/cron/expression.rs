//! A cron expression, and the local times it names. croner reads it and searches; here is what croner
//! does not say: where the fault of a bad one is. Names stand only where they mean something (croner
//! takes `mon` for 1 in any field), and a list has no empty elements.

use crate::failure::{Failure, Outcome};
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use std::cmp::Ordering;

const LONGEST: usize = 255;
const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// Each field's name, and what it may hold.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, or L for the last one"),
    ("month", "1 to 12, or jan to dec"),
    ("day of the week", "0 to 7 (0 and 7 are Sunday), or sun to sat"),
];
const DAY_OF_MONTH: usize = 3;
const MONTH: usize = 4;
const DAY_OF_WEEK: usize = 5;
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

pub struct Expression {
    cron: Cron,
    /// Whether it names every hour of the day.
    pub every_hour: bool,
}

impl Expression {
    pub fn parse(text: &str) -> Outcome<Self> {
        if text.len() > LONGEST {
            return Err(fault("is too long", LONGEST + 1, format!("It has {LONGEST} bytes at most.")));
        }
        if let Some(at) = text.chars().position(|c| !c.is_ascii() || c.is_ascii_control() && c != '\t') {
            return Err(fault("is not valid", at + 1, "It is written in plain letters, digits and signs."));
        }
        let begin = text.len() - text.trim_start().len() + 1;
        let nickname = text.trim().to_ascii_lowercase();
        if nickname.starts_with('@') {
            return match NICKNAMES.iter().find(|(name, _)| *name == nickname) {
                Some((_, meaning)) => Self::parse(meaning),
                None => Err(fault("is not valid", begin, format!("The names there are: {}.", names()))),
            };
        }
        let fields = fields(text);
        if fields.len() < 5 {
            return Err(fault("ends too early", text.len() + 1, "It has five fields, or six with seconds."));
        }
        if let Some((at, _)) = fields.get(6) {
            return Err(fault("goes on too long", at + 1, "It has five fields, or six with seconds."));
        }
        for (number, (at, field)) in fields.iter().enumerate() {
            let number = number + 6 - fields.len();
            if let Some(part) = bad_part(number, field) {
                let (name, range) = FIELDS[number];
                return Err(fault(
                    "is not valid",
                    at + part + 1,
                    format!(
                        "This is the {name}: {range}; as *, a value, a range 1-5, a step */2 or 1-9/2, or a list 1,5 of them."
                    ),
                ));
            }
        }
        let cron = read(text).map_err(|_| fault("is not valid", begin, "Its fields do not fit together."))?;
        let every_hour = (0..24).all(|hour| matches!(cron.pattern.hour_match(hour), Ok(true)));
        Ok(Expression { cron, every_hour })
    }

    /// The first local time that it names after this one (or at it). None if there is none any more.
    pub fn next(&self, local: Local, inclusive: bool) -> Option<Local> {
        self.cron.find_next_occurrence(&local, inclusive).ok()
    }
}

fn names() -> String {
    NICKNAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn fault(what: &str, position: usize, detail: impl Into<String>) -> Failure {
    Failure::invalid(
        format!("the cron expression {what} at position {position}"),
        "Write it like '30 4 * * mon-fri' (minute, hour, day of the month, month, day of the week), '*/10 * * * * *' (seconds first) or '@daily'.",
    )
    .detail(detail)
}

fn read(text: &str) -> Result<Cron, CronError> {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(text)
}

/// The fields, each with the place where it begins.
fn fields(text: &str) -> Vec<(usize, &str)> {
    let place = |field: &str| field.as_ptr() as usize - text.as_ptr() as usize;
    text.split_ascii_whitespace().map(|field| (place(field), field)).collect()
}

/// Where in a field the first part begins that is not valid.
fn bad_part(number: usize, field: &str) -> Option<usize> {
    let is_bad = |text: &str| {
        let mut alone = ["0", "*", "*", "*", "*", "*"];
        alone[number] = text;
        text.is_empty() || !letters_fit(number, text) || read(&alone.join(" ")).is_err()
    };
    let mut begin = 0;
    for part in field.split(',') {
        if is_bad(part) {
            return Some(begin);
        }
        begin += part.len() + 1;
    }
    // Parts that are right alone may not go together, such as * and 5.
    is_bad(field).then_some(0)
}

/// Whether every word in a part is one that this field knows.
fn letters_fit(number: usize, part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    let mut words = part.split(|c: char| !c.is_ascii_lowercase()).filter(|word| !word.is_empty());
    words.all(|word| match number {
        DAY_OF_MONTH => word == "l" || word == "w",
        MONTH => MONTHS.contains(&word),
        DAY_OF_WEEK => word == "l" || WEEKDAYS.contains(&word),
        _ => false,
    })
}

/// What a clock on the wall shows: seconds since 2000-01-01 00:00 there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Local(pub i64);

const DAY: i64 = 86_400;
/// Days from 0000-03-01 to 2000-01-01, and in 400, 100 and 4 years: a year that begins in March has
/// its leap day at the end.
const MARCH_0000: i64 = 730_425;
const YEARS_400: i64 = 146_097;

impl Local {
    fn date(self) -> CivilDate {
        let days = self.0.div_euclid(DAY) + MARCH_0000;
        let (era, day) = (days.div_euclid(YEARS_400), days.rem_euclid(YEARS_400));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day_of_month = day - (153 * month + 2) / 5 + 1;
        let (year, month) = (era * 400 + year + month / 10, (month + 2) % 12 + 1);
        CivilDate::from_parts_unchecked(year as i32, month as u32, day_of_month as u32)
    }

    fn at(civil: CivilDateTime) -> Self {
        let month = (i64::from(civil.month()) + 9) % 12;
        let year = i64::from(civil.year()) - month / 10;
        let day = 365 * year + year.div_euclid(4) - year.div_euclid(100)
            + year.div_euclid(400)
            + (153 * month + 2) / 5
            + i64::from(civil.day())
            - 1;
        let time = i64::from(civil.hour() * 3_600 + civil.minute() * 60 + civil.second());
        Local((day - MARCH_0000) * DAY + time)
    }
}

impl CronDateTime for Local {
    fn to_civil(&self) -> CivilDateTime {
        let second = self.0.rem_euclid(DAY) as u32;
        let time = CivilTime::from_parts_unchecked(second / 3_600, second / 60 % 60, second % 60);
        CivilDateTime::new(self.date(), time)
    }

    fn civil_weekday(&self) -> Weekday {
        // 2000-01-01 was a Saturday.
        Weekday::from_days_from_sunday((self.0.div_euclid(DAY) + 6).rem_euclid(7) as u32)
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        Ok(Resolution::Single(Local::at(civil)))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(seconds).map(Local)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A time in the form 2026-03-29 02:30.
    pub fn local(text: &str) -> Local {
        let n: Vec<u32> = text.split(['-', ' ', ':']).map(|part| part.parse().unwrap()).collect();
        let second = n.get(5).copied().unwrap_or(0);
        Local::at(CivilDateTime::from_ymd_hms_opt(n[0] as i32, n[1], n[2], n[3], n[4], second).unwrap())
    }

    fn position(text: &str) -> usize {
        let message = Expression::parse(text).err().unwrap().message;
        message.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        assert_eq!(local("2000-01-01 00:00"), Local(0));
        assert_eq!(local("2000-03-01 00:00"), Local(60 * DAY));
        assert_eq!(local("2026-11-29 00:00"), Local(9_829 * DAY));
        for day in (-200_000..400_000).step_by(7) {
            let there = Local(day * DAY + 7);
            assert_eq!(Local::at(there.to_civil()), there);
        }
        assert_eq!(local("2026-11-29 00:00").civil_weekday(), Weekday::Sunday);
    }

    #[test]
    fn faults_are_found_where_they_stand() {
        for (text, at) in [
            ("", 1),
            ("* * * *", 8),
            ("* * * * * * *", 13),
            ("60 * * * *", 1),
            ("0 24 * * *", 3),
            ("0  1,24 * * *", 6),
            ("0 0 0 * *", 5),
            ("0 0 1 13 *", 7),
            ("0 0 * * mon,8", 13),
            ("0 0 * * monday", 9),
            ("mon * * * *", 1),
            ("0 jan * * *", 3),
            ("0 0 * mon *", 7),
            ("0 0 * * jan", 9),
            ("0 0,,1 * * *", 5),
            ("0 0, * * *", 5),
            ("*/0 * * * *", 1),
            ("5-1 * * * *", 1),
            ("  @never", 3),
            ("@reboot", 1),
            ("0 0 * * é", 9),
            ("0 0 * *\n*", 8),
            ("61 0 0 * * *", 1),
            ("0 0 * * *,5", 9),
            ("x", 2),
        ] {
            assert_eq!(position(text), at, "{text:?}");
        }
    }

    #[test]
    fn what_cron_users_write_is_read() {
        let from = local("2026-11-29 10:20"); // a Sunday
        for (text, next) in [
            ("* * * * *", "2026-11-29 10:21"),
            ("*/15 * * * *", "2026-11-29 10:30"),
            ("*/10 * * * * *", "2026-11-29 10:20:10"),
            ("30 4 * * MON-fri", "2026-11-30 04:30"),
            ("0 8-18/5 * * *", "2026-11-29 13:00"),
            ("0 0 1 jan,Jul *", "2027-01-01 00:00"),
            ("0 0 * * 7", "2026-12-06 00:00"),
            ("0 0 * * 0", "2026-12-06 00:00"),
            // a day of the month or one of the week
            ("0 0 13 * fri", "2026-12-04 00:00"),
            ("0 0 13 * +fri", "2027-08-13 00:00"),
            ("0 0 L * *", "2026-11-30 00:00"),
            ("0 0 * * 5L", "2026-12-25 00:00"),
            ("0 0 15W * *", "2026-12-15 00:00"),
            ("8-18/5 0 * * *", "2026-11-30 00:08"),
            ("0 0 * * mon#2", "2026-12-14 00:00"),
            ("0 0 29 2 *", "2028-02-29 00:00"),
            (" @hourly ", "2026-11-29 11:00"),
            ("@daily", "2026-11-30 00:00"),
            ("@midnight", "2026-11-30 00:00"),
            ("@Weekly", "2026-12-06 00:00"),
            ("@monthly", "2026-12-01 00:00"),
            ("@yearly", "2027-01-01 00:00"),
            ("@annually", "2027-01-01 00:00"),
        ] {
            let expression = Expression::parse(text).map_err(|f| format!("{text}: {f:?}")).unwrap();
            assert_eq!(expression.next(from, false), Some(local(next)), "{text}");
        }
    }

    #[test]
    fn a_day_that_no_year_has_never_comes() {
        for text in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            assert_eq!(Expression::parse(text).map(|e| e.next(Local(0), false)), Ok(None), "{text}");
        }
    }
}
