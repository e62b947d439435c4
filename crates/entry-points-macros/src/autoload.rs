//! `autoload!()`, `autoload!(only a, b)` and `autoload!(except a, b)`: names each crate of the list in `rustc_args.rs`, and
//! refers to the hidden constant of its `entry_points!` block, if it has one. That list has the dependencies that Cargo passes
//! for this target: direct ones, renamed ones by their new name, those of enabled features, and dev-dependencies in tests.

use std::collections::BTreeSet;

use proc_macro::Span;

use crate::rustc_args::{self, Externs};
use crate::source::{Error, Output, Tokens};

const NO_LIST: &str = "`autoload!` cannot find the dependencies of this target: the compiler shows no `--extern` \
list; name the crates, as in `autoload!(only codec_a, codec_b);`, or write `extern crate codec_a as _;` for each";

pub(crate) fn expand(input: &mut Tokens) -> Result<Output, Error> {
    let names = match choice(input)? {
        Choice::Only(names) => names,
        Choice::AllBut(left_out) => match rustc_args::externs() {
            Externs::Known(names) => names.difference(&left_out).cloned().collect(),
            Externs::Ide => BTreeSet::new(),
            Externs::Unknown => return Err(Error::new(Span::call_site(), NO_LIST)),
        },
    };
    Ok(link(&names))
}

enum Choice {
    Only(BTreeSet<String>),
    AllBut(BTreeSet<String>),
}

fn choice(input: &mut Tokens) -> Result<Choice, Error> {
    if input.is_empty() {
        return Ok(Choice::AllBut(BTreeSet::new()));
    }
    let word = input.ident("`only` or `except`")?;
    let chosen = match word.to_string().as_str() {
        "only" => Choice::Only(crate_names(input)?),
        "except" => Choice::AllBut(crate_names(input)?),
        other => {
            return Err(Error::new(
                word.span(),
                format!("expected `only a, b` or `except a, b`, found `{other}`"),
            ));
        }
    };
    Ok(chosen)
}

fn crate_names(input: &mut Tokens) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    loop {
        let name = input.ident("the name of a crate, as in `use`")?;
        if input.peek_punct('-') {
            let message =
                format!("expected the name of a crate with underscores, as in `use`; found `{name}-`");
            return Err(Error::new(name.span(), message));
        }
        names.insert(name.to_string().trim_start_matches("r#").to_owned());
        if input.is_empty() {
            return Ok(names);
        }
        input.punct(',')?;
        if input.is_empty() {
            return Ok(names);
        }
    }
}

/// Links each crate and refers to its hidden constant, if it has one.
///
/// A macro cannot find out whether a crate has the constant, but name lookup can. If the crate exports it, the glob
/// import of the inner block finds it. Otherwise the lookup finds the empty constant of the outer block.
///
/// The reference is an ordinary typed path, so it needs no linker section of the other crate. A crate that was built
/// against another version of entry-points is a compile error.
fn link(names: &BTreeSet<String>) -> Output {
    let krate = Output::CRATE;
    let mut output = Output::default();
    output.text("const _: () = {");
    for name in names {
        // Not `extern crate`, whose name for the crate would show in the user's error messages.
        output.text(&format!("#[allow(unused_imports)] use ::r#{name} as _;"));
    }
    output.text(&format!(
        "static AUTOLOADED: &[(&str, &[{krate}::__private::Registration])] = {{
            #[allow(unused_imports)]
            use {krate}::__private::nothing::__ENTRY_POINTS;
            &["
    ));
    for name in names {
        output.text(&format!(
            "({name:?}, {{ #[allow(unused_imports, clippy::wildcard_imports)] use ::r#{name}::*; __ENTRY_POINTS }}),"
        ));
    }
    output.text(&format!(
        "]
        }};
        {krate}::__collect_autoload! {{ AUTOLOADED }}
        }};"
    ));
    output
}
