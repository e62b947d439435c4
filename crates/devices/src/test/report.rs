//! The verdicts of a run, as JSON and as JUnit's XML.

use std::fmt::{self, Write};
use std::time::Duration;

use device_conformance::harness::Verdict;
use serde::Serialize;

/// The form of the JSON document. A change that a reader would notice changes it.
const FORMAT: u32 = 1;

/// What became of the tests, in the order in which they ended.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    format: u32,
    /// The version of this crate.
    version: &'static str,
    /// What was tested, as the argument says.
    tested: String,
    /// Whether all is well. Otherwise a test has failed, or the run itself: standard error says why.
    success: bool,
    tests: Vec<TestCase>,
}

#[derive(Debug, Serialize)]
pub(super) struct TestCase {
    name: String,
    verdict: Kind,
    /// Why, if it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Passed,
    Failed,
    ExpectedFailure,
    Unsupported,
    Skipped,
}

impl TestCase {
    pub(super) fn new(name: &str, verdict: &Verdict, took: Duration) -> Self {
        let (kind, message) = match verdict {
            Verdict::Passed => (Kind::Passed, None),
            Verdict::Failed(message) => (Kind::Failed, Some(message)),
            Verdict::ExpectedFailure(reason) => (Kind::ExpectedFailure, Some(reason)),
            Verdict::Unsupported(reason) => (Kind::Unsupported, Some(reason)),
            Verdict::Skipped(reason) => (Kind::Skipped, Some(reason)),
        };
        let message = message.cloned();
        Self { name: name.to_owned(), verdict: kind, message, seconds: took.as_secs_f64() }
    }
}

impl Report {
    pub(super) fn new(tested: &str, success: bool, tests: Vec<TestCase>) -> Self {
        Self { format: FORMAT, version: env!("CARGO_PKG_VERSION"), tested: tested.to_owned(), success, tests }
    }

    /// The report in the XML that JUnit's task for Ant has, which CI systems read. What did not pass and did
    /// not fail is *skipped* there, with its reason.
    pub(super) fn junit(&self) -> String {
        let failed = self.tests.iter().filter(|test| test.verdict == Kind::Failed).count();
        let passed = self.tests.iter().filter(|test| test.verdict == Kind::Passed).count();
        let skipped = self.tests.len() - failed - passed;
        // A run that failed although no test did, as where no test ran, has a test of its own.
        let of_run = usize::from(!self.success && failed == 0);
        let seconds: f64 = self.tests.iter().map(|test| test.seconds).sum();
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuites>\n<testsuite name=\"devices test {}\" tests=\"{}\" failures=\"{failed}\" errors=\"{of_run}\" \
             skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
            Escaped(&self.tested),
            self.tests.len() + of_run,
        );
        if of_run > 0 {
            xml += "<testcase classname=\"\" name=\"run\" time=\"0\"><error message=\"the run failed, and standard error \
                    says why\"/></testcase>\n";
        }
        for TestCase { name, verdict, message, seconds } in &self.tests {
            let (class, name) = name.rsplit_once("::").unwrap_or(("", name));
            let (class, name) = (Escaped(class), Escaped(name));
            let message = message.as_deref().unwrap_or_default();
            // Writing to a text cannot fail.
            let _ = write!(xml, "<testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\"");
            let first = Escaped(message.lines().next().unwrap_or_default());
            let _ = match verdict {
                Kind::Passed => writeln!(xml, "/>"),
                Kind::Failed => {
                    writeln!(xml, "><failure message=\"{first}\">{}</failure></testcase>", Escaped(message))
                }
                Kind::ExpectedFailure => {
                    writeln!(xml, "><skipped message=\"expected failure: {first}\"/></testcase>")
                }
                Kind::Unsupported => writeln!(xml, "><skipped message=\"unsupported: {first}\"/></testcase>"),
                Kind::Skipped => writeln!(xml, "><skipped message=\"{first}\"/></testcase>"),
            };
        }
        xml + "</testsuite>\n</testsuites>\n"
    }
}

/// A text as XML. Characters that XML 1.0 cannot have, such as those that control a terminal, are replaced.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\n' | '\t' => f.write_char(c)?,
                '\u{fffe}' | '\u{ffff}' => f.write_char(char::REPLACEMENT_CHARACTER)?,
                c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_has_its_form() {
        let case = |name: &str, verdict| TestCase::new(name, &verdict, Duration::from_millis(250));
        let report = Report::new(
            "acme:1",
            false,
            vec![
                case("acme:1::memory::round_trip", Verdict::Passed),
                case(
                    "acme:1::copies::a_chain",
                    Verdict::Failed("expected \"1\",\nfound <\u{1b}2>".to_owned()),
                ),
                case("acme:1::events::timed", Verdict::Unsupported("no timestamps".to_owned())),
                case("acme:1::events::late", Verdict::ExpectedFailure("driver 3.1".to_owned())),
                case("other::devices", Verdict::Skipped("no driver".to_owned())),
            ],
        );
        assert_eq!(
            report.junit(),
            "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites>
<testsuite name=\"devices test acme:1\" tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"3\" time=\"1.250\">
<testcase classname=\"acme:1::memory\" name=\"round_trip\" time=\"0.250\"/>
<testcase classname=\"acme:1::copies\" name=\"a_chain\" time=\"0.250\"><failure message=\"expected &quot;1&quot;,\">\
expected &quot;1&quot;,\nfound &lt;\u{fffd}2&gt;</failure></testcase>
<testcase classname=\"acme:1::events\" name=\"timed\" time=\"0.250\">\
<skipped message=\"unsupported: no timestamps\"/></testcase>
<testcase classname=\"acme:1::events\" name=\"late\" time=\"0.250\">\
<skipped message=\"expected failure: driver 3.1\"/></testcase>
<testcase classname=\"other\" name=\"devices\" time=\"0.250\"><skipped message=\"no driver\"/></testcase>
</testsuite>
</testsuites>
"
        );
        let failed = Report::new("acme:1", false, Vec::new()).junit();
        assert!(failed.contains(" tests=\"1\" failures=\"0\" errors=\"1\""), "{failed}");
        assert!(!Report::new("acme:1", true, Vec::new()).junit().contains("<error"));
        let json = serde_json::to_value(&report).expect("it is data");
        assert_eq!(json["tests"][3]["verdict"], "expected_failure");
        assert_eq!((&json["format"], &json["tests"][0]["message"]), (&1.into(), &serde_json::Value::Null));
    }
}
