//! Facts about the functions of a backend, and what the program does without those that may be missing.

/// The functions that a backend may leave out, in the order of the header, with what follows.
const OPTIONAL: &[(&str, &str, &str)] = &[
    ("backend", "presence", "all devices count as present"),
    ("device", "write", "blocking writes go through a stream"),
    ("device", "read", "blocking reads go through a stream"),
    ("device", "copy", "blocking copies go through a stream"),
    ("device", "fill", "a fill writes a part, and doubles it by copies"),
    ("device", "copy_from_peer", "copies between devices go through the host"),
    ("device", "create_stream", "the program runs a thread for each stream"),
    ("device", "allocate_host", "no host memory is pinned"),
    ("device", "reset", "a lost device comes back with a new process only"),
    ("device", "close", "the backend does not get to know of the end of a device"),
    ("device", "has_faults", "tests cannot inject faults"),
    ("device", "inject", "each fault is unsupported"),
    ("device", "clear_faults", "each fault stays"),
    ("device", "native_handle", "kernels get no native handle of the device"),
    ("device", "memory_native_handle", "kernels get no native handles of memory"),
    ("device", "extension", "there are no functions beyond the interface"),
    ("stream", "fill", "a fill writes a part, and doubles it by copies"),
    ("stream", "copy_from_peer", "copies between devices go through the host"),
    ("stream", "wait", "the program waits on the host before it submits more"),
    ("stream", "launched", "the backend does not get to know of native work"),
    ("stream", "flush", "work has to begin when it is submitted"),
    ("stream", "native_handle", "kernels get no native handle of a stream"),
    ("event", "elapsed_since", "no event has a timestamp"),
    ("event", "is_over", "the program calls `query`"),
];

/// Lines about the functions of a backend: each table by its name, with the functions that are there, and the
/// missing ones.
pub(super) fn functions(tables: &[(String, Vec<String>)]) -> Vec<(&'static str, String)> {
    let has = |table: &str, function: &str| {
        tables.iter().any(|(name, functions)| name == table && functions.iter().any(|name| name == function))
    };
    let mut lines = Vec::new();
    for table in ["backend", "device", "stream", "event"] {
        if matches!(table, "stream" | "event") && !has("device", "create_stream") {
            continue;
        }
        let optional = OPTIONAL.iter().filter(|(of, ..)| *of == table);
        let there: Vec<_> =
            optional.clone().filter(|(_, name, _)| has(table, name)).map(|(_, name, _)| *name).collect();
        let there = match &there[..] {
            [] => "the required functions".to_owned(),
            names => format!("the required functions, {}", names.join(", ")),
        };
        lines.push((table, there));
        // Without faults, nothing injects or clears one.
        let of_faults = |name: &str| matches!(name, "inject" | "clear_faults");
        let missing = optional
            .filter(|(_, name, _)| !has(table, name) && (has(table, "has_faults") || !of_faults(name)));
        lines.extend(missing.map(|(_, name, then)| ("", format!("  no {name}: {then}"))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{BackendApi, DeviceApi, EventApi, StreamApi, Table};
    use crate::load::REQUIRED;

    fn tables(leave_out: &[&str]) -> Vec<(String, Vec<String>)> {
        let table = |name: &str, functions: Vec<(&str, bool)>| {
            let names = functions.into_iter().map(|(name, _)| name.to_owned());
            (name.to_owned(), names.filter(|name| !leave_out.contains(&name.as_str())).collect())
        };
        vec![
            table("backend", BackendApi::ZEROED.functions()),
            table("device", DeviceApi::ZEROED.functions()),
            table("stream", StreamApi::ZEROED.functions()),
            table("event", EventApi::ZEROED.functions()),
        ]
    }

    #[test]
    fn each_function_of_the_interface_is_required_or_optional() {
        let tables = tables(&[]);
        let of_table = |table: &str| {
            let optional = OPTIONAL.iter().filter(|(of, ..)| *of == table).map(|(_, name, _)| *name);
            let required = REQUIRED.iter().filter(|(of, _)| *of == table).flat_map(|(_, names)| names.iter());
            let mut names: Vec<_> = optional.chain(required.copied()).map(str::to_owned).collect();
            names.sort();
            names
        };
        for (table, functions) in &tables {
            let mut functions = functions.clone();
            functions.sort();
            assert_eq!(of_table(table), functions, "{table}");
        }
        assert_eq!(functions(&tables).len(), 4);
    }

    #[test]
    fn a_missing_function_has_a_line_with_what_happens_without_it() {
        let lines = functions(&tables(&["presence", "is_over"]));
        assert_eq!(lines[0], ("backend", "the required functions".to_owned()));
        assert_eq!(lines[1], ("", "  no presence: all devices count as present".to_owned()));
        assert_eq!(lines.last().unwrap().1, "  no is_over: the program calls `query`");
    }

    #[test]
    fn a_backend_without_queues_has_no_lines_about_them() {
        let lines = functions(&tables(&["create_stream"]));
        assert!(lines.iter().all(|(table, _)| !matches!(*table, "stream" | "event")), "{lines:?}");
    }
}
