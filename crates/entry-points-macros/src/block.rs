//! `entry_points! { #[distributed_slice(GROUP)] pub static NAME: Type = Type::new("name", load); … }`.

use proc_macro::{Delimiter, Ident, TokenStream, TokenTree};

use crate::source::{Angles, Error, Output, Tokens};

/// One static of the block.
struct Element {
    /// All attributes except `distributed_slice`, each as the tokens between its brackets.
    attributes: Vec<TokenStream>,
    /// The path inside `#[distributed_slice(…)]`.
    group: TokenStream,
    visibility: TokenStream,
    name: Ident,
    ty: TokenStream,
    value: TokenStream,
}

pub(crate) fn expand(input: &mut Tokens) -> Result<Output, Error> {
    let mut elements = Vec::new();
    while !input.is_empty() {
        elements.push(element(input)?);
    }
    let krate = Output::CRATE;
    let mut output = Output::default();
    output.text(&format!(
        "const _: () = {krate}::__private::assert_at_crate_root(
            ::core::module_path!(),
            \"`entry_points!` must be at the root of the crate, where `autoload!` looks for it; in a test or a \
            program, pass the plugin to the group's `register` instead, or `include!` the file at the root\",
        );"
    ));
    for element in &elements {
        emit_static(&mut output, element);
    }

    output
        .text(&format!("#[doc(hidden)] pub const __ENTRY_POINTS: &[{krate}::__private::Registration] = &["));
    for element in &elements {
        conditions(&mut output, element);
        registration(&mut output, element);
        output.text(",");
    }
    output.text("];");
    Ok(output)
}

fn element(input: &mut Tokens) -> Result<Element, Error> {
    let mut attributes = input.attributes()?;
    let position = attributes.iter().position(|attribute| is_named(attribute, "distributed_slice"));
    let Some(position) = position else {
        let found = input.next();
        return Err(input.unexpected(found, "`#[distributed_slice(GROUP)]` on each entry point"));
    };
    let mut attribute = Tokens::new(attributes.remove(position));
    attribute.keyword("distributed_slice")?;
    let group = attribute.group(Delimiter::Parenthesis, "the group, as in `distributed_slice(GROUP)`")?;
    let visibility = input.visibility();
    input.keyword("static")?;
    let name = input.ident("the name of the static")?;
    input.punct(':')?;
    let ty = input.until('=', Angles::Pair, "the type of the static")?;
    let value = input.until(';', Angles::Operators, "the value of the static")?;
    Ok(Element { attributes, group, visibility, name, ty, value })
}

fn is_named(attribute: &TokenStream, name: &str) -> bool {
    matches!(attribute.clone().into_iter().next(), Some(TokenTree::Ident(ident)) if ident.to_string() == name)
}

/// The static itself, as an element for linkme and a submission for inventory. On targets without one of the
/// collectors, its macro expands to nothing.
fn emit_static(output: &mut Output, element: &Element) {
    let krate = Output::CRATE;
    output.text(&format!("{krate}::__linked_static! {{ ("));
    output.tokens(element.group.clone());
    output.text(")");
    for attribute in &element.attributes {
        output.text("#[").tokens(attribute.clone()).text("]");
    }
    output.tokens(element.visibility.clone()).text("static").tokens(TokenTree::from(element.name.clone()));
    // The value is an argument and not the receiver of a method, so that its closures get the type of the
    // static.
    output.text(":").tokens(element.ty.clone()).text(&format!("= {krate}::__private::with_origin("));
    output.tokens(element.value.clone()).text(&format!(
        ", {krate}::__private::Origin::new(
            <"
    ));
    output.tokens(element.group.clone());
    output.text(&format!("as {krate}::__private::Collected>::name,"));
    for variable in ["NAME", "VERSION", "REPOSITORY"] {
        output.text(&format!("::core::option_env!(\"CARGO_PKG_{variable}\"),"));
    }
    output.text(&format!(
        "::core::concat!(::core::module_path!(), {:?}),",
        format!("::{}", load_path(&element.value).unwrap_or_else(|| element.name.to_string()))
    ));
    output.text(")); }");

    conditions(output, element);
    output.text(&format!("{krate}::__collect_registration! {{ "));
    registration(output, element);
    output.text("}");
}

fn registration(output: &mut Output, element: &Element) {
    output.text(&format!("{}::__private::Registration::new::<", Output::CRATE));
    output.tokens(element.group.clone()).text(">(&").tokens(TokenTree::from(element.name.clone())).text(")");
}

/// Repeats the element's `#[cfg(…)]` on the code that refers to it.
fn conditions(output: &mut Output, element: &Element) {
    for attribute in element.attributes.iter().filter(|attribute| is_named(attribute, "cfg")) {
        output.text("#[").tokens(attribute.clone()).text("]");
    }
}

/// The path of the load function: the second argument of the call that makes the entry point, if it is a
/// path.
fn load_path(value: &TokenStream) -> Option<String> {
    let call = value.clone().into_iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    })?;
    let mut arguments = Tokens::new(call);
    arguments.until(',', Angles::Operators, "the name").ok()?;
    let mut path = String::new();
    while let Some(token) = arguments.next() {
        match token {
            TokenTree::Ident(ident) => path.push_str(&ident.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == ':' => path.push(':'),
            TokenTree::Punct(punct) if punct.as_char() == ',' => break,
            _ => return None,
        }
    }
    Some(path.trim_start_matches("crate::").trim_start_matches("self::").to_owned())
}
