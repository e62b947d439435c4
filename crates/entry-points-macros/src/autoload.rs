//! `autoload!()`, `autoload!(only a, b)` and `autoload!(except a, b)`: names each crate of the list in
//! `rustc_args.rs`, and refers to the hidden constant of its `entry_points!` block, if it has one. That list
//! has the dependencies that Cargo passes for this target: direct ones, renamed ones by their new name,
//! optional ones of enabled features, and dev-dependencies in tests.

use std::collections::BTreeSet;

use proc_macro::Span;

use crate::rustc_args::{self, Externs, Kind, Names, Reach};
use crate::source::{Error, Output, Tokens};

pub(crate) fn expand(input: &mut Tokens) -> Result<Output, Error> {
    let names = match choice(input)? {
        Choice::Only(names) => names.into_iter().map(|name| (name, Reach::Path)).collect(),
        Choice::AllBut(left_out) => match rustc_args::externs() {
            Externs::Known(mut names) => {
                names.retain(|name, _| !left_out.contains(name));
                names
            }
            Externs::Ide => Names::new(),
            Externs::Unknown(why) => {
                return Err(Error::new(
                    Span::call_site(),
                    format!(
                        "`autoload!` cannot find the dependencies of this target: {why}; name the crates, as in \
                         `autoload!(only codec_a, codec_b);`, or write `extern crate codec_a as _;` for each"
                    ),
                ));
            }
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

/// Links each crate, and refers to the hidden constants at its root: `__ENTRY_POINTS`, which its
/// `entry_points!` block leaves, and `__AUTOLOADED`, which an `autoload!` line of its own leaves. In a
/// library this line leaves the second one too, so that the lines of a program are a tree with typed
/// references.
///
/// A macro cannot find out whether a crate has such a constant, but name lookup can. If the crate exports it,
/// the glob import of the inner block finds it. Otherwise the lookup finds the empty constant of the outer
/// block.
///
/// The reference is an ordinary typed path, so it needs no linker section of the other crate, and the linker
/// cannot drop what it leads to. A crate that was built against another version of entry-points is a compile
/// error.
fn link(names: &Names) -> Output {
    let krate = Output::CRATE;
    let mut output = Output::default();
    let kind = rustc_args::kind();
    if kind == Kind::Library {
        output.text(&format!(
            "const _: () = {krate}::__private::assert_at_crate_root(
                ::core::module_path!(),
                \"in a library, `autoload!` must be at the root of the crate, where the lines of programs look for it\",
            );
            const _: ::core::option::Option<&'static {krate}::__private::Autoload> = crate::__AUTOLOADED;"
        ));
    }
    // A program may have several lines in one module; only a library needs the constant, which has one name.
    output.text(if kind == Kind::Final { "const _" } else { "#[doc(hidden)] pub const __AUTOLOADED" });
    output.text(&format!(": ::core::option::Option<&'static {krate}::__private::Autoload> = {{"));
    for (name, reach) in names {
        match reach {
            // Not `extern crate`, whose name for the crate would show in the user's error messages.
            Reach::Path => output.text(&format!("use ::r#{name} as _;")),
            Reach::ExternCrate => output.text(&format!("extern crate r#{name} as __linked_{name};")),
        };
    }
    output.text(&format!(
        "static CRATES: &[{krate}::__private::Linked] = {{
            use {krate}::__private::nothing::{{__AUTOLOADED, __ENTRY_POINTS}};
            &["
    ));
    for (name, reach) in names {
        let path = match reach {
            Reach::Path => format!("::r#{name}"),
            Reach::ExternCrate => format!("__linked_{name}"),
        };
        output.text(&format!(
            "{{
                use {path}::*;
                {krate}::__private::Linked::new({name:?}, __ENTRY_POINTS, __AUTOLOADED)
            }},"
        ));
    }
    output.text(&format!(
        "]
        }};
        {krate}::__collect_autoload! {{ CRATES, {} }}
        ::core::option::Option::Some(&AUTOLOAD)
        }};",
        kind == Kind::Library
    ));
    output
}
