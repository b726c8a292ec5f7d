//! A row of a table of settings: its environment name, range, meaning and parser.
//!
//! ```text
//!   environment  MX_SPIN_US=100 --+
//!                                 +--> rows --> S   and one Refused for every
//!   options     "MX_SPIN_US=100"--+                 rejected value
//!   (take precedence)
//! ```
//!
//! Sizes take the suffixes K, M and G (powers of 1024), switches `on` and `off`. A rejected value leaves the old one in
//! place. An elevated process does not trust its environment, and takes only quantities from there.
//!
//! Owns: the syntax of values, and which kinds of values an elevated process's caller may set.
//! Out of scope: the settings themselves (`settings`, and the libraries above).

use mx_port_fabric::is_elevated;
use mx_proto::Route;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Setting: its name, its legal values, and the member of the settings struct `S` that stores it.
#[derive(Debug)]
pub struct Tunable<S> {
    /// Name of the environment variable and of the option.
    pub name: &'static str,
    /// Legal values.
    pub kind: ValueKind,
    /// Meaning, in one sentence without a full stop.
    pub about: &'static str,
    /// Stores a parsed value.
    pub set: fn(&mut S, Value),
    /// Returns the current value.
    pub get: fn(&S) -> Value,
}

/// A value, of the [`ValueKind`] of its tunable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number; for a word of a choice its index.
    Number(u64),
    /// A text, or none.
    Text(Option<String>),
}

/// Makes an array of tunables, each written as `name, kind, (member), sentence;`, or with `[setter, getter]` instead of
/// the member. A first `@as_ref as_mut:` names the methods that lead to the settings with the members.
#[macro_export]
macro_rules! tunables {
    (@row $name:expr, $kind:expr, $about:expr, [$set:expr, $get:expr], $($by:tt)*) => {
        $crate::tunable::Tunable { name: $name, kind: $kind, about: $about, set: $set, get: $get }
    };
    (@row $name:expr, $kind:expr, $about:expr, ($($member:ident).+), $($by:ident $by_mut:ident)?) => {
        $crate::tunable::Tunable {
            name: $name,
            kind: $kind,
            about: $about,
            set: |s, value| $crate::tunable::Field::put(&mut s$(.$by_mut())?.$($member).+, value),
            get: |s| $crate::tunable::Field::value(&s$(.$by())?.$($member).+),
        }
    };
    (@rows $by:tt $($name:expr, $kind:expr, $member:tt, $about:expr;)+) => {
        [$($crate::tunables!(@by $by $name, $kind, $about, $member)),+]
    };
    (@by [$($by:tt)*] $name:expr, $kind:expr, $about:expr, $member:tt) => {
        $crate::tunables!(@row $name, $kind, $about, $member, $($by)*)
    };
    (@$by:ident $by_mut:ident: $($rows:tt)+) => { $crate::tunables!(@rows [$by $by_mut] $($rows)+) };
    ($($rows:tt)+) => { $crate::tunables!(@rows [] $($rows)+) };
}

/// Conversion of one member of a settings struct from and to a parsed and checked [`Value`]. A value of another kind is
/// ignored. Durations are in milliseconds.
pub trait Field {
    /// Sets the member. The row's kind accepts only values that the member can have.
    fn put(&mut self, value: Value);
    /// Returns the member's value.
    fn value(&self) -> Value;
}

/// Implements [`Field`] for types made of a number or a text.
macro_rules! field {
    ($($type:ty, $kind:ident($value:ident) => $put:expr, $me:ident => $get:expr;)+) => {$(
        impl Field for $type {
            fn put(&mut self, value: Value) {
                if let Value::$kind($value) = value {
                    *self = $put;
                }
            }

            fn value(&self) -> Value {
                let $me = self;
                Value::$kind($get)
            }
        }
    )+};
}

field! {
    bool, Number(v) => v == 1, me => (*me).into();
    u8, Number(v) => v as Self, me => (*me).into();
    u16, Number(v) => v as Self, me => (*me).into();
    u32, Number(v) => v as Self, me => (*me).into();
    usize, Number(v) => v as Self, me => *me as u64;
    Route, Number(v) => Self(v as u8), me => me.0.into();
    Duration, Number(v) => Self::from_millis(v), me => me.as_millis() as u64;
    Option<Duration>, Number(v) => (v > 0).then(|| Duration::from_millis(v)), me => me.map_or(0, |me| me.as_millis() as u64);
    Option<String>, Text(v) => v, me => me.clone();
    // Paths from settings are UTF-8.
    Option<PathBuf>, Text(v) => v.map(PathBuf::from), me => me.as_deref().and_then(Path::to_str).map(str::to_owned);
}

/// Implements [`Field`] for an enum whose variants are the words of a [`ValueKind::Choice`].
#[macro_export]
macro_rules! choice {
    ($type:ty: $($variant:ident),+) => {
        impl $crate::tunable::Field for $type {
            fn put(&mut self, value: $crate::tunable::Value) {
                if let $crate::tunable::Value::Number(place) = value
                    && let Some(variant) = [$(Self::$variant),+].get(place as usize)
                {
                    *self = *variant;
                }
            }

            fn value(&self) -> $crate::tunable::Value {
                let place = [$(Self::$variant),+].iter().position(|variant| variant == self);
                $crate::tunable::Value::Number(place.unwrap_or(0) as u64)
            }
        }
    };
}

/// Legal values of a tunable.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// A whole number in this inclusive range.
    Number(u64, u64),
    /// A whole number in this range, or 0 to disable the setting.
    OrZero(u64, u64),
    /// A network port number in this inclusive range. Not a quantity: a port decides which process is connected to.
    PortNumber(u64, u64),
    /// A number of bytes in this inclusive range.
    Bytes(u64, u64),
    /// `off` or `on`.
    Switch,
    /// A word of this list; the value is its index.
    Choice(&'static [&'static str]),
    /// A name, or `auto` for none.
    Name,
    /// The path of a file, or `none`.
    Path,
    /// A text that the function accepts, or `none`. The first field describes the form.
    Formed(&'static str, fn(&str) -> bool),
}

/// Text for no name.
const NO_NAME: &str = "auto";

/// Text for no file, and for no text.
const NO_PATH: &str = "none";

/// Maximum length of a [`ValueKind::Name`], in bytes: longer than any provider's name.
pub const NAME_MAX: usize = 64;

/// Maximum length of a [`ValueKind::Path`], in bytes, as Linux accepts it.
pub const PATH_MAX: usize = libc::PATH_MAX as usize - 1;

/// Number of bytes in a KiB.
pub const K: u64 = 1024;
/// Number of bytes in a MiB.
pub const M: u64 = 1024 * K;
/// Number of bytes in a GiB.
pub const G: u64 = 1024 * M;

/// Setting that was not applied, and the reason.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Name as given.
    pub name: String,
    /// Text as given; empty for an unknown or an ignored variable.
    pub value: String,
    /// Reason of the rejection.
    pub reason: Reason,
}

/// Reasons to reject a setting.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// The value is not legal.
    Invalid(ValueKind),
    /// No setting has this name.
    Unknown,
    /// The process is elevated, and does not trust its caller with this setting.
    Elevated,
}

/// Reads settings into `settings`: first from `environment` (only quantities in an elevated process), then from
/// `options` (`NAME=value`, separated by commas or blanks). Returns the rejected ones, in that order; they leave
/// `settings` unchanged.
pub fn load<'a, S: 'static>(
    rows: impl Iterator<Item = &'a Tunable<S>> + Clone,
    settings: &mut S,
    environment: impl Fn(&str) -> Option<String>,
    options: &str,
) -> Vec<Refused> {
    load_as(is_elevated(), rows, settings, environment, options)
}

/// Implements [`load`] for an `elevated` or an ordinary process.
fn load_as<'a, S: 'static>(
    elevated: bool,
    rows: impl Iterator<Item = &'a Tunable<S>> + Clone,
    settings: &mut S,
    environment: impl Fn(&str) -> Option<String>,
    options: &str,
) -> Vec<Refused> {
    let mut refused = Vec::new();
    for row in rows.clone() {
        if let Some(value) = environment(row.name) {
            if elevated && !row.kind.is_quantity() {
                refused.push(Refused::elevated(row.name));
                continue;
            }
            refused.extend(row.apply(settings, value.trim()).err());
        }
    }
    let named = |name: &str| rows.clone().find(|row| row.name == name);
    let is_text = |name: &str| matches!(named(name), Some(row) if row.kind.is_text());
    for option in split_options(options, is_text) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match named(name) {
            Some(row) => refused.extend(row.apply(settings, value).err()),
            None => refused.push(Refused {
                name: name.to_owned(),
                value: value.to_owned(),
                reason: Reason::Unknown,
            }),
        }
    }
    refused
}

/// Splits an option string. A semicolon is a separator, too, unless it is in the middle of a text, such as the provider
/// `tcp;ofi_rxm` or a path.
fn split_options(options: &str, is_text: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut entries = Vec::new();
    for chunk in options.split(|c: char| c == ',' || c.is_whitespace()) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let name = rest.split_once('=').map_or("", |(name, _)| name);
            let end = if is_text(name) {
                // The last semicolon before the next `NAME=`.
                let value = name.len() + 1;
                let next = rest[value..].find('=');
                next.and_then(|next| rest[value..value + next].rfind(';'))
                    .map(|at| value + at)
            } else {
                rest.find(';')
            };
            let (entry, after) = match end {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, ""),
            };
            entries.push(entry.trim_end_matches(';'));
            rest = after;
        }
    }
    entries.retain(|entry| !entry.is_empty());
    entries
}

impl<S> Tunable<S> {
    /// Parses `text` and stores the value in this setting's member of `settings`. Fails, without a change, if the value
    /// is not legal.
    pub fn apply(&self, settings: &mut S, text: &str) -> Result<(), Refused> {
        let Some(value) = self.kind.parse(text) else {
            return Err(Refused {
                name: self.name.to_owned(),
                value: text.to_owned(),
                reason: Reason::Invalid(self.kind),
            });
        };
        (self.set)(settings, value);
        Ok(())
    }

    /// Returns the value in `settings`, formatted as `apply` accepts it.
    pub fn text(&self, settings: &S) -> String {
        match ((self.get)(settings), self.kind) {
            (Value::Number(value), kind) => kind.number_text(value),
            (Value::Text(Some(text)), _) => text,
            (Value::Text(None), ValueKind::Path | ValueKind::Formed(..)) => NO_PATH.to_owned(),
            (Value::Text(None), _) => NO_NAME.to_owned(),
        }
    }
}

impl ValueKind {
    fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Path | Self::Formed(..))
    }

    /// Returns whether values are quantities, which an elevated process's caller may set. All others choose what the
    /// process reads, runs or connects to.
    pub fn is_quantity(self) -> bool {
        matches!(self, Self::Number(..) | Self::OrZero(..) | Self::Bytes(..))
    }

    fn number_text(self, value: u64) -> String {
        match self {
            Self::Number(..) | Self::OrZero(..) | Self::PortNumber(..) => value.to_string(),
            // Texts never get here.
            Self::Name | Self::Path | Self::Formed(..) => value.to_string(),
            Self::Bytes(..) => match value {
                0 => "0".to_owned(),
                v if v % G == 0 => format!("{}G", v / G),
                v if v % M == 0 => format!("{}M", v / M),
                v if v % K == 0 => format!("{}K", v / K),
                v => v.to_string(),
            },
            Self::Switch => if value == 1 { "on" } else { "off" }.to_owned(),
            Self::Choice(words) => words
                .get(value as usize)
                .map_or_else(|| value.to_string(), |word| (*word).to_owned()),
        }
    }

    fn parse(self, text: &str) -> Option<Value> {
        let number = match self {
            Self::Number(min, max) | Self::PortNumber(min, max) => {
                text.parse().ok().filter(|v| (min..=max).contains(v))
            }
            Self::OrZero(min, max) => {
                let fits = |v: &u64| *v == 0 || (min..=max).contains(v);
                text.parse().ok().filter(fits)
            }
            Self::Bytes(min, max) => {
                let (digits, unit) = match text.as_bytes().last()? {
                    b'K' | b'k' => (&text[..text.len() - 1], K),
                    b'M' | b'm' => (&text[..text.len() - 1], M),
                    b'G' | b'g' => (&text[..text.len() - 1], G),
                    _ => (text, 1),
                };
                let value = digits.parse::<u64>().ok()?.checked_mul(unit)?;
                (min..=max).contains(&value).then_some(value)
            }
            Self::Switch => match text {
                "on" | "1" | "yes" | "true" => Some(1),
                "off" | "0" | "no" | "false" => Some(0),
                _ => None,
            },
            Self::Choice(words) => words
                .iter()
                .position(|word| *word == text)
                .map(|place| place as u64),
            Self::Name => {
                let fits = text.len() <= NAME_MAX && text.bytes().all(|b| b.is_ascii_graphic());
                let name = Some(text).filter(|text| !matches!(*text, "" | NO_NAME));
                return fits.then(|| Value::Text(name.map(str::to_owned)));
            }
            Self::Path => {
                let fits = (1..=PATH_MAX).contains(&text.len()) && !text.contains('\0');
                let path = Some(text).filter(|text| *text != NO_PATH);
                return fits.then(|| Value::Text(path.map(str::to_owned)));
            }
            Self::Formed(_, fits) => {
                let some = Some(text).filter(|text| !matches!(*text, "" | NO_PATH));
                let fits = some.is_none_or(fits);
                return fits.then(|| Value::Text(some.map(str::to_owned)));
            }
        };
        number.map(Value::Number)
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Number(min, max) | Self::Bytes(min, max) | Self::PortNumber(min, max) => {
                write!(f, "{} to {}", self.number_text(min), self.number_text(max))
            }
            Self::OrZero(min, max) => write!(f, "0, {min} to {max}"),
            Self::Switch => f.write_str("on, off"),
            Self::Choice(words) => f.write_str(&words.join(", ")),
            Self::Name => write!(f, "{NO_NAME}, a name"),
            Self::Path => write!(f, "{NO_PATH}, a path"),
            Self::Formed(wanted, _) => write!(f, "{NO_PATH}, {wanted}"),
        }
    }
}

impl Refused {
    /// Reports a variable that an elevated process ignores, without its value.
    pub(crate) fn elevated(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: String::new(),
            reason: Reason::Elevated,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Invalid(kind) => write!(
                f,
                "{}={:?} ignored: not one of {kind}",
                self.name, self.value
            ),
            Reason::Unknown => write!(f, "unknown setting {:?} ignored", self.name),
            Reason::Elevated => write!(
                f,
                "{} ignored: this process has more rights than its caller",
                self.name
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting of each kind.
    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Sample {
        number: usize,
        bytes: usize,
        switch: usize,
        choice: usize,
        name: Option<String>,
        path: Option<String>,
        formed: Option<String>,
        port: u16,
    }

    const SAMPLE: Sample = Sample {
        number: 7,
        bytes: 4 * K as usize,
        switch: 0,
        choice: 1,
        name: None,
        path: None,
        formed: None,
        port: 2048,
    };

    static ROWS: [Tunable<Sample>; 8] = tunables! {
        "NUMBER", ValueKind::Number(5, 10), (number), "a sample";
        "BYTES", ValueKind::Bytes(K, G), (bytes), "a sample";
        "SWITCH", ValueKind::Switch, (switch), "a sample";
        "CHOICE", ValueKind::Choice(&["a", "b"]), (choice), "a sample";
        "NAME", ValueKind::Name, (name), "a sample";
        "FILE", ValueKind::Path, (path), "a sample";
        "FORMED", ValueKind::Formed("a=b", |text| text.contains('=')), (formed), "a sample";
        "PORT", ValueKind::PortNumber(1024, 4096), (port), "a sample";
    };

    fn read(environment: &[(&str, &str)], options: &str) -> (Sample, Vec<String>) {
        let mut sample = SAMPLE;
        let value = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let refused = load(ROWS.iter(), &mut sample, value, options);
        (sample, refused.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_kind_takes_what_it_says_in_every_spelling() {
        let all = [
            ("NUMBER", vec!["5", "10"]),
            (
                "BYTES",
                vec!["1024", "1K", "1k", "3M", "3m", "1G", "1g", "1025"],
            ),
            (
                "SWITCH",
                vec!["on", "1", "yes", "true", "off", "0", "no", "false"],
            ),
            ("CHOICE", vec!["a", "b"]),
            ("NAME", vec!["auto", "", "verbs;ofi_rxm"]),
            ("FILE", vec!["none", "/etc/mx peers", "here;there"]),
            ("FORMED", vec!["none", "", "x=1,y=2", "x=1;y=2"]),
            ("PORT", vec!["1024", "4096"]),
        ];
        for (name, texts) in all {
            for text in texts {
                let (_, refused) = read(&[(name, text)], "");
                assert!(refused.is_empty(), "{refused:?}");
            }
        }
        assert_eq!(read(&[("SWITCH", "yes")], "").0.switch, 1);
        assert_eq!(read(&[("BYTES", "2k")], "").0.bytes, 2048);
    }

    #[test]
    fn out_of_range_values_are_rejected_with_the_range() {
        let all = [
            ("NUMBER", vec!["4", "11", "-6", "", "six", "6.0"], "5 to 10"),
            (
                "BYTES",
                vec![
                    "1023",
                    "2G",
                    "99999999999G",
                    "K",
                    "1T",
                    "",
                    "18446744073709551616",
                ],
                "1K to 1G",
            ),
            ("SWITCH", vec!["", "2", "ON"], "on, off"),
            ("CHOICE", vec!["", "c", "A"], "a, b"),
            ("NAME", vec!["two words", "t\u{e9}"], "auto, a name"),
            ("FILE", vec!["", "a\0b"], "none, a path"),
            ("FORMED", vec!["x"], "none, a=b"),
            ("PORT", vec!["1023", "4097", "-1", "1K"], "1024 to 4096"),
        ];
        for (name, texts, wanted) in all {
            for text in texts {
                let (sample, refused) = read(&[(name, text)], "");
                assert_eq!(sample, SAMPLE);
                let says = format!("{name}={text:?} ignored: not one of {wanted}");
                assert_eq!(refused, [says]);
            }
        }
    }

    #[test]
    fn texts_are_taken_up_to_their_longest_and_no_further() {
        for (name, max) in [("NAME", NAME_MAX), ("FILE", PATH_MAX)] {
            assert!(read(&[(name, &"x".repeat(max))], "").1.is_empty());
            assert_eq!(read(&[(name, &"x".repeat(max + 1))], "").1.len(), 1);
        }
    }

    #[test]
    fn a_value_is_written_as_it_can_be_read_back() {
        let (sample, _) = read(
            &[("BYTES", "1536K"), ("SWITCH", "on"), ("FILE", "/a/b")],
            "NUMBER=10,NAME=psm3;CHOICE=a,FORMED=x=1;y=2",
        );
        let texts: Vec<String> = ROWS.iter().map(|row| row.text(&sample)).collect();
        let expected = ["10", "1536K", "on", "a", "psm3", "/a/b", "x=1;y=2", "2048"];
        assert_eq!(texts, expected);
        let mut again = SAMPLE;
        for (row, text) in ROWS.iter().zip(&texts) {
            row.apply(&mut again, text).unwrap();
        }
        assert_eq!(again, sample);
        let (sample, _) = read(&[("NAME", "x"), ("FILE", "x")], "NAME=auto FILE=none");
        assert_eq!(
            (ROWS[4].text(&sample), ROWS[5].text(&sample)),
            ("auto".to_owned(), "none".to_owned())
        );
        assert_eq!((sample.name, sample.path), (None, None));
    }

    #[test]
    fn options_win_and_unknown_ones_are_named() {
        let (sample, refused) = read(&[("NUMBER", " 5 "), ("CHOICE", "a")], "NUMBER=6,WHAT=1 b");
        assert_eq!((sample.number, sample.choice), (6, 0));
        let says = [
            "unknown setting \"WHAT\" ignored",
            "unknown setting \"b\" ignored",
        ];
        assert_eq!(refused, says);
    }

    #[test]
    fn an_elevated_process_takes_only_quantities_from_its_caller() {
        let given = [
            ("NUMBER", "6"),
            ("BYTES", "2K"),
            ("SWITCH", "on"),
            ("CHOICE", "a"),
            ("NAME", "/tmp/planted"),
            ("FILE", "/etc/shadow"),
            ("FORMED", "planted=1"),
            ("PORT", "4096"),
        ];
        let value = |name: &str| {
            let found = given.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut sample = SAMPLE;
        let refused = load_as(true, ROWS.iter(), &mut sample, value, "");
        let expected = Sample {
            number: 6,
            bytes: 2048,
            ..SAMPLE
        };
        assert_eq!(sample, expected);
        let says: Vec<String> = refused.iter().map(ToString::to_string).collect();
        let names = ["SWITCH", "CHOICE", "NAME", "FILE", "FORMED", "PORT"];
        let expected = names
            .map(|name| format!("{name} ignored: this process has more rights than its caller"));
        assert_eq!(says, expected);

        let mut sample = SAMPLE;
        let options = "FILE=/etc/mine,PORT=1024";
        load_as(true, ROWS.iter(), &mut sample, value, options);
        let of_host = (sample.path.as_deref(), sample.port);
        assert_eq!(of_host, (Some("/etc/mine"), 1024));
    }

    #[test]
    fn semicolons_separate_unless_they_are_in_a_name_or_a_path() {
        let texts = |options| {
            let (sample, refused) = read(&[], options);
            assert!(refused.is_empty(), "{refused:?}");
            (sample.number, sample.name, sample.path)
        };
        let expected = (9, Some("tcp;ofi_rxm".to_owned()), Some("/a;b".to_owned()));
        for options in [
            "NUMBER=9;NAME=tcp;ofi_rxm;FILE=/a;b",
            "NAME=tcp;ofi_rxm;FILE=/a;b;NUMBER=9;",
            ";;FILE=/a;b,NAME=tcp;ofi_rxm NUMBER=9",
        ] {
            assert_eq!(texts(options), expected, "{options}");
        }
    }

    #[test]
    fn no_milliseconds_are_no_time_out() {
        let mut timeout = Some(Duration::ZERO);
        for (number, expected) in [(0, None), (86_400_000, Some(Duration::from_secs(86_400)))] {
            timeout.put(Value::Number(number));
            assert_eq!(
                (timeout, timeout.value()),
                (expected, Value::Number(number))
            );
        }
    }
}
