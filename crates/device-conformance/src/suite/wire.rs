//! The lines that a process of the suite and its worker exchange: requests on the worker's standard input,
//! and replies on its standard output, where a driver may print as well.

use crate::availability::Availability;
use crate::verdict::{Judged, Verdict};

/// The start of each reply, at the start of a line. Any other line is a driver's. What a driver prints at the
/// same time may tear a reply apart, which is an error and not a line to print: another process waits for
/// that reply.
const MARK: &str = "device-conformance reply:";

/// What a worker has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Load a backend, and count its devices.
    Load { backend: String },
    /// Run a check on a device of a backend.
    Run { backend: String, device: String, check: String },
}

/// What a worker reports. The first two carry the number of their request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Loaded(u64, Availability<String>),
    Judged(u64, Judged),
    /// A call into a driver begins, with the thread and the call as text.
    Begins(String, String),
    /// The last call of this thread has returned.
    Ends(String),
    /// The last one: the worker was asked to end, and does.
    Bye,
}

pub(super) fn request_line(number: u64, request: &Request) -> String {
    let number = number.to_string();
    let fields = match request {
        Request::Load { backend } => vec![&*number, "load", backend],
        Request::Run { backend, device, check } => vec![&*number, "run", backend, device, check],
    };
    join(fields) + "\n"
}

pub(super) fn parse_request(line: &str) -> Option<(u64, Request)> {
    let mut fields = split(line);
    let number = fields.next()?.parse().ok()?;
    let kind = fields.next()?;
    let mut next = || fields.next();
    let request = match &*kind {
        "load" => Request::Load { backend: next()? },
        "run" => Request::Run { backend: next()?, device: next()?, check: next()? },
        _ => return None,
    };
    Some((number, request))
}

/// A reply as its own line, even if a driver has printed the start of a line.
pub(super) fn reply_line(reply: &Reply) -> String {
    let text = |number: &u64, kind: &str, text: &str| join([&*number.to_string(), kind, text]);
    let fields = match reply {
        Reply::Loaded(number, Availability::Available(devices)) => {
            join([&*number.to_string(), "devices"].into_iter().chain(devices.iter().map(|name| &**name)))
        }
        Reply::Loaded(number, Availability::Unavailable(reason)) => text(number, "unavailable", reason),
        Reply::Loaded(number, Availability::Broken(message)) => text(number, "broken", message),
        Reply::Judged(number, Judged { verdict, exceeded }) => {
            let (kind, why) = match verdict {
                Verdict::Passed => ("passed", ""),
                Verdict::Failed(message) => ("failed", &**message),
                Verdict::ExpectedFailure(reason) => ("expected", &**reason),
                Verdict::Unsupported(reason) => ("unsupported", &**reason),
                Verdict::Skipped(reason) => ("skipped", &**reason),
            };
            join([&*number.to_string(), kind, why, if *exceeded { "exceeded" } else { "" }])
        }
        Reply::Begins(thread, call) => join(["", "begins", thread, call]),
        Reply::Ends(thread) => join(["", "ends", thread]),
        Reply::Bye => join(["", "bye"]),
    };
    format!("\n{MARK}{fields}\n")
}

/// The reply on a line. `None` if it has none, and an error if that is not whole.
pub(super) fn parse_reply(line: &str) -> Option<Result<Reply, ()>> {
    Some(parse_fields(line.strip_prefix(MARK)?).ok_or(()))
}

fn parse_fields(fields: &str) -> Option<Reply> {
    let mut fields = split(fields);
    let number = fields.next()?;
    let kind = fields.next()?;
    let mut next = || fields.next();
    match &*kind {
        "begins" => return Some(Reply::Begins(next()?, next()?)),
        "ends" => return Some(Reply::Ends(next()?)),
        "bye" => return Some(Reply::Bye),
        _ => {}
    }
    let number = number.parse().ok()?;
    let verdict = match &*kind {
        "devices" => return Some(Reply::Loaded(number, Availability::Available(fields.collect()))),
        "unavailable" => return Some(Reply::Loaded(number, Availability::Unavailable(next()?))),
        "broken" => return Some(Reply::Loaded(number, Availability::Broken(next()?))),
        "passed" => next().map(|_| Verdict::Passed)?,
        "failed" => Verdict::Failed(next()?),
        "expected" => Verdict::ExpectedFailure(next()?),
        "unsupported" => Verdict::Unsupported(next()?),
        "skipped" => Verdict::Skipped(next()?),
        _ => return None,
    };
    Some(Reply::Judged(number, Judged { verdict, exceeded: next()? == "exceeded" }))
}

fn join<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let escape = |field: &str| {
        field.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r")
    };
    fields.into_iter().map(escape).collect::<Vec<_>>().join("\t")
}

fn split(line: &str) -> impl Iterator<Item = String> {
    line.split('\t').map(|field| {
        let mut text = String::with_capacity(field.len());
        let mut rest = field.chars();
        while let Some(next) = rest.next() {
            text.push(match next {
                '\\' => match rest.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    other => other.unwrap_or('\\'),
                },
                other => other,
            });
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_read_as_it_was_written() {
        let hostile = || "two\nlines,\ta tab, \\n, \r and \u{1b}[31m".to_owned();
        let replies = [
            Reply::Loaded(1, Availability::Available(vec![])),
            Reply::Loaded(2, Availability::Available(vec!["acme:0".to_owned(), "acme:1".to_owned()])),
            Reply::Loaded(3, Availability::Unavailable(hostile())),
            Reply::Loaded(4, Availability::Broken(hostile())),
            Reply::Judged(5, Judged { verdict: Verdict::Passed, exceeded: false }),
            Reply::Judged(6, Judged { verdict: Verdict::Failed(hostile()), exceeded: true }),
            Reply::Judged(7, Judged { verdict: Verdict::ExpectedFailure(hostile()), exceeded: false }),
            Reply::Judged(8, Judged { verdict: Verdict::Unsupported(hostile()), exceeded: false }),
            Reply::Judged(9, Judged { verdict: Verdict::Skipped(hostile()), exceeded: true }),
            Reply::Begins(hostile(), "`acme:0` write".to_owned()),
            Reply::Ends(hostile()),
            Reply::Bye,
        ];
        for reply in replies {
            let line = reply_line(&reply);
            let [_, line] = line.lines().collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            assert_eq!(parse_reply(line), Some(Ok(reply)));
        }
        let run = Request::Run { backend: "acme".to_owned(), device: "acme:0".to_owned(), check: hostile() };
        for request in [Request::Load { backend: hostile() }, run] {
            let line = request_line(17, &request);
            assert_eq!(parse_request(line.trim_end_matches('\n')), Some((17, request)));
        }
    }

    #[test]
    fn a_line_of_a_driver_is_no_reply() {
        for line in ["", "running 1 test", "acme: 1\tpassed\t\t"] {
            assert_eq!(parse_reply(line), None, "{line}");
        }
    }

    #[test]
    fn a_torn_reply_is_an_error() {
        for fields in ["", "1", "1\tpassed", "1\tpassed\tacme: ready", "1\tpass", "x\tpassed\t\t", "\tends"] {
            assert_eq!(parse_reply(&format!("{MARK}{fields}")), Some(Err(())), "{fields}");
        }
    }
}
