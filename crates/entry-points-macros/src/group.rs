//! `group! { pub static SLICE: [EntryPoint<dyn P>]; pub fn group() -> Group<dyn P> { Group::new("name") } }`.

use proc_macro::{Delimiter, TokenStream, TokenTree};

use crate::rustc_args;
use crate::source::{Error, Output, Tokens};

pub(crate) fn expand(input: &mut Tokens) -> Result<Output, Error> {
    let slice_attributes = input.attributes()?;
    let slice_visibility = input.visibility();
    input.keyword("static")?;
    let slice = input.ident("the name of the distributed slice")?;
    input.punct(':')?;
    let element = input.group(Delimiter::Bracket, "`[EntryPoint<…>]`")?;
    input.punct(';')?;

    let function_attributes = input.attributes()?;
    let function_visibility = input.visibility();
    input.keyword("fn")?;
    let function = input.ident("the name of the function that returns the group")?;
    input.group(Delimiter::Parenthesis, "`()`")?;
    input.punct('-')?;
    input.punct('>')?;
    input.keyword("Group")?;
    let plugin = angle_brackets(input)?;
    let body = input.group(Delimiter::Brace, "the group, as `{ Group::new(\"name\") }`")?;

    let krate = Output::CRATE;
    let name = unique_name(&slice.to_string());
    // A unit test is another build of the crate than the one that plugins among its dev-dependencies use.
    // With two slices of one name linkme would read neither.
    let unique = if rustc_args::is_test() { format!("{name}_TEST") } else { name.clone() };
    let mut output = Output::default();

    // The aliases stay outside of the module below, where `super::` and `self::` in the user's types would be
    // other paths.
    output.text(&format!("#[doc(hidden)] #[allow(non_camel_case_types)] type {unique}_Element ="));
    output.tokens(element).text(";");
    output.text(&format!("#[doc(hidden)] #[allow(non_camel_case_types)] type {unique}_Plugin ="));
    output.tokens(plugin.clone()).text(";");

    // linkme identifies a slice by the bare identifier of its static: two crates with a slice called DECODERS
    // would make each other panic. So the static has a unique name, and the short name is a re-export of
    // three items at once: the static, linkme's macro, and the type that leads from the slice to its group.
    output.text(&format!(
        "#[doc(hidden)] #[allow(non_snake_case, unreachable_pub, private_interfaces, clippy::wildcard_imports)]
        pub mod {unique} {{
            {krate}::__linked_slice! {{ "
    ));
    attributes(&mut output, &slice_attributes);
    output.text(&format!(
        "pub static {unique}: [super::{unique}_Element]; }}
        #[doc(hidden)] #[allow(non_camel_case_types, missing_docs)] pub enum {unique} {{}}
        impl {krate}::__private::Collected for {unique} {{
            type Plugin = super::{unique}_Plugin;
            fn slice() -> {krate}::__private::SliceId {{
                {krate}::__private::SliceId::of::<Self>(
                    {name:?}, ::core::module_path!(), ::core::option_env!(\"CARGO_PKG_VERSION\"), ::core::cfg!(test),
                )
            }}
            fn name() -> &'static str {{ super::"
    ));
    output.tokens(TokenTree::from(function.clone()));
    // Not inlined: each crate with an entry point would have its own copy of the group's functions, 110 kB.
    output.text(&format!(
        "().name() }}
            #[inline(never)]
            fn group() -> ::core::option::Option<&'static dyn {krate}::__private::AnyGroup> {{
                ::core::option::Option::Some(super::"
    ));
    output.tokens(TokenTree::from(function.clone()));
    output.text(&format!("()) }} }} {krate}::__collect_group! {{ {unique} }} }}"));

    output.text("#[doc(inline)]").tokens(slice_visibility);
    output.text(&format!("use {unique}::{unique} as")).tokens(TokenTree::from(slice)).text(";");

    attributes(&mut output, &function_attributes);
    output.tokens(function_visibility).text("fn").tokens(TokenTree::from(function));
    output.text(&format!("() -> &'static {krate}::Group<")).tokens(plugin.clone());
    output.text(&format!("> {{ static GROUP: {krate}::Group<")).tokens(plugin);
    output.text("> = ({").tokens(body);
    output.text(&format!(
        "}}).collected(
            || &{unique}::{unique}[..],
            <{unique}::{unique} as {krate}::__private::Collected>::slice,
        ); &GROUP }}"
    ));
    Ok(output)
}

fn attributes(output: &mut Output, attributes: &[TokenStream]) {
    for attribute in attributes {
        output.text("#[").tokens(attribute.clone()).text("]");
    }
}

fn angle_brackets(input: &mut Tokens) -> Result<TokenStream, Error> {
    input.punct('<')?;
    let mut depth = 1_usize;
    let mut after_dash = false;
    let mut inner = Vec::new();
    while let Some(token) = input.next() {
        let punct = match &token {
            TokenTree::Punct(punct) => Some(punct.as_char()),
            _ => None,
        };
        match punct {
            Some('<') => depth += 1,
            Some('>') if !after_dash => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(inner.into_iter().collect());
        }
        after_dash = punct == Some('-');
        inner.push(token);
    }
    Err(input.unexpected(None, "`>`"))
}

/// A name for the slice that is unique in the whole program. It does not contain the version on purpose: two
/// versions of a framework in one program are found by the equal names of their slices, and a group is not
/// silently split in two.
fn unique_name(slice: &str) -> String {
    let krate = std::env::var("CARGO_CRATE_NAME").ok().or_else(rustc_args::crate_name).unwrap_or_default();
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| krate.clone());
    let package = package.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let mut name = format!("ENTRY_POINTS_{package}");
    if krate != package {
        name.push('_');
        name.push_str(&krate);
    }
    name.push('_');
    name.push_str(slice);
    name
}
