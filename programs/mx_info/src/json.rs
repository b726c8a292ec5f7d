//! Values for programs.
//!
//! ```text
//!   Json::Object([("pid", Number(7))])  --Display-->  {"pid":7}
//! ```
//!
//! Owns: JSON's syntax.

use std::fmt;

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Json {
    /// Something that is not known.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Number(u64),
    /// Any other number.
    Fraction(f64),
    /// A string.
    Text(String),
    /// Values in order.
    List(Vec<Self>),
    /// Named values in order.
    Object(Vec<(String, Self)>),
}

impl Json {
    /// An object of fields with fixed names.
    pub(crate) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let fields = fields.into_iter();
        Self::Object(
            fields
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }

    /// A string.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A string, or null when it is empty.
    pub(crate) fn text_or_null(text: &str) -> Self {
        match text {
            "" => Self::Null,
            text => Self::text(text),
        }
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl FromIterator<Self> for Json {
    fn from_iter<I: IntoIterator<Item = Self>>(items: I) -> Self {
        Self::List(items.into_iter().collect())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Fraction(number) if number.is_finite() => write!(f, "{number}"),
            Self::Fraction(_) => f.write_str("null"),
            Self::Text(text) => quote(f, text),
            Self::List(items) => {
                let mut before = "[";
                for item in items {
                    write!(f, "{before}{item}")?;
                    before = ",";
                }
                f.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Self::Object(fields) => {
                let mut before = "{";
                for (name, value) in fields {
                    f.write_str(before)?;
                    quote(f, name)?;
                    write!(f, ":{value}")?;
                    before = ",";
                }
                f.write_str(if fields.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let value = Json::object([
            ("a\"b", Json::text("c\\d\n")),
            (
                "list",
                Json::List(vec![1_u32.into(), Json::Null, Json::Bool(true)]),
            ),
            ("empty", Json::List(Vec::new())),
            ("none", Json::Object(Vec::new())),
            ("half", Json::Fraction(0.5)),
            ("odd", Json::Fraction(f64::NAN)),
        ]);
        assert_eq!(
            value.to_string(),
            r#"{"a\"b":"c\\d\u000a","list":[1,null,true],"empty":[],"none":{},"half":0.5,"odd":null}"#
        );
        assert_eq!(Json::text_or_null(""), Json::Null);
    }
}
