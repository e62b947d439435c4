//! A parser and a quoter, just large enough for three small macros.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Why a macro cannot be expanded, with the span of the mistake.
pub(crate) struct Error {
    pub(crate) at: Span,
    pub(crate) message: String,
}

impl Error {
    pub(crate) fn new(at: Span, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// `::core::compile_error!("message");`, with the span of the offending token.
    fn into_tokens(self) -> TokenStream {
        let at = self.at;
        let punct = |c, spacing| TokenTree::Punct(Punct::new(c, spacing));
        let ident = |name| TokenTree::Ident(Ident::new(name, at));
        let mut message = Literal::string(&self.message);
        message.set_span(at);
        let mut argument = Group::new(Delimiter::Brace, TokenTree::Literal(message).into());
        argument.set_span(at);
        let mut tokens = vec![
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            ident("core"),
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            ident("compile_error"),
            punct('!', Spacing::Alone),
            TokenTree::Group(argument),
        ];
        tokens.iter_mut().for_each(|token| token.set_span(at));
        tokens.into_iter().collect()
    }
}

/// Expands one macro, whose `input` is `[$crate] the user's tokens`.
///
/// The `$crate` token replaces [`Output::CRATE`] in the output. It has to stay a token, since its text does
/// not parse back.
pub(crate) fn expand(input: TokenStream, body: fn(&mut Tokens) -> Result<Output, Error>) -> TokenStream {
    let mut tokens = Tokens::new(input);
    let result = tokens.group(Delimiter::Bracket, "the path of entry-points").and_then(|krate| {
        let output = body(&mut tokens)?;
        Ok(output.into_tokens(&krate))
    });
    result.unwrap_or_else(Error::into_tokens)
}

/// How to read `<` and `>`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Angles {
    /// They are brackets: in a type, where the end may also occur between them.
    Pair,
    /// They are operators: in a value, where the end does not occur between angle brackets.
    Operators,
}

/// The user's tokens, read from left to right.
pub(crate) struct Tokens {
    rest: std::iter::Peekable<proc_macro::token_stream::IntoIter>,
    last: Span,
}

impl Tokens {
    pub(crate) fn new(tokens: TokenStream) -> Self {
        Self { rest: tokens.into_iter().peekable(), last: Span::call_site() }
    }

    pub(crate) fn peek(&mut self) -> Option<&TokenTree> {
        self.rest.peek()
    }

    pub(crate) fn next(&mut self) -> Option<TokenTree> {
        let token = self.rest.next()?;
        self.last = token.span();
        Some(token)
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.peek().is_none()
    }

    pub(crate) fn peek_punct(&mut self, c: char) -> bool {
        matches!(self.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == c)
    }

    pub(crate) fn peek_ident(&mut self, name: &str) -> bool {
        matches!(self.peek(), Some(TokenTree::Ident(ident)) if ident.to_string() == name)
    }

    pub(crate) fn ident(&mut self, what: &str) -> Result<Ident, Error> {
        match self.next() {
            Some(TokenTree::Ident(ident)) => Ok(ident),
            other => Err(self.unexpected(other, what)),
        }
    }

    pub(crate) fn keyword(&mut self, name: &str) -> Result<(), Error> {
        match self.next() {
            Some(TokenTree::Ident(ident)) if ident.to_string() == name => Ok(()),
            other => Err(self.unexpected(other, &format!("`{name}`"))),
        }
    }

    pub(crate) fn punct(&mut self, c: char) -> Result<(), Error> {
        match self.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == c => Ok(()),
            other => Err(self.unexpected(other, &format!("`{c}`"))),
        }
    }

    pub(crate) fn group(&mut self, delimiter: Delimiter, what: &str) -> Result<TokenStream, Error> {
        match self.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Ok(group.stream()),
            other => Err(self.unexpected(other, what)),
        }
    }

    /// The tokens up to the next `end`; `end` itself is dropped.
    pub(crate) fn until(&mut self, end: char, angles: Angles, what: &str) -> Result<TokenStream, Error> {
        let mut depth = 0_usize;
        let mut after_dash = false;
        let mut taken = Vec::new();
        while let Some(token) = self.next() {
            if let TokenTree::Punct(punct) = &token {
                match punct.as_char() {
                    c if c == end && depth == 0 => return Ok(taken.into_iter().collect()),
                    '<' if angles == Angles::Pair => depth += 1,
                    '>' if !after_dash => depth = depth.saturating_sub(1),
                    _ => {}
                }
                // The `>` of `->` is not a bracket.
                after_dash = punct.as_char() == '-';
            } else {
                after_dash = false;
            }
            taken.push(token);
        }
        Err(self.unexpected(None, &format!("`{end}` after {what}")))
    }

    /// Outer attributes, each as the tokens between its brackets.
    pub(crate) fn attributes(&mut self) -> Result<Vec<TokenStream>, Error> {
        let mut attributes = Vec::new();
        while self.peek_punct('#') {
            self.punct('#')?;
            attributes.push(self.group(Delimiter::Bracket, "an attribute")?);
        }
        Ok(attributes)
    }

    /// `pub`, `pub(…)` or nothing.
    pub(crate) fn visibility(&mut self) -> TokenStream {
        let mut visibility = Vec::new();
        if self.peek_ident("pub") {
            visibility.extend(self.next());
            if matches!(self.peek(), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
            {
                visibility.extend(self.next());
            }
        }
        visibility.into_iter().collect()
    }

    pub(crate) fn unexpected(&self, found: Option<TokenTree>, expected: &str) -> Error {
        match found {
            Some(token) => Error::new(token.span(), format!("expected {expected}, found `{token}`")),
            None => Error::new(self.last, format!("expected {expected}, found the end of the macro")),
        }
    }
}

/// The expansion under construction: source text of this crate, with the user's tokens in between.
#[derive(Default)]
pub(crate) struct Output {
    source: String,
    holes: Vec<TokenStream>,
}

impl Output {
    /// A placeholder for the path of entry-points in [`Output::text`].
    pub(crate) const CRATE: &'static str = "__entry_points_crate__";

    const HOLE: &'static str = "__entry_points_hole_";

    /// Adds source text of this crate.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.source.push_str(text);
        self.source.push(' ');
        self
    }

    /// Adds the user's tokens with their spans, so that errors point at them.
    pub(crate) fn tokens(&mut self, tokens: impl Into<TokenStream>) -> &mut Self {
        let hole = format!("{}{}__ ", Self::HOLE, self.holes.len());
        self.holes.push(tokens.into());
        self.source.push_str(&hole);
        self
    }

    fn into_tokens(self, krate: &TokenStream) -> TokenStream {
        let source: TokenStream = self.source.parse().expect("the source text of an expansion parses");
        fill(source, krate, &self.holes)
    }
}

fn fill(tokens: TokenStream, krate: &TokenStream, holes: &[TokenStream]) -> TokenStream {
    let mut filled = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                if name == Output::CRATE {
                    filled.extend(krate.clone());
                } else if let Some(number) = hole_number(&name) {
                    filled.extend(holes[number].clone());
                } else {
                    filled.extend([TokenTree::Ident(ident)]);
                }
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), fill(group.stream(), krate, holes));
                inner.set_span(group.span());
                filled.extend([TokenTree::Group(inner)]);
            }
            other => filled.extend([other]),
        }
    }
    filled
}

fn hole_number(name: &str) -> Option<usize> {
    name.strip_prefix(Output::HOLE)?.strip_suffix("__")?.parse().ok()
}
