//! Functions of a file: their parameters, and the lines of their bodies.
//!
//! The other rules go by lines of text. Parameters and ends of bodies need a parser: `syn`, whose
//! spans have lines. Code that a macro makes is not seen, and a file that does not parse has no
//! functions; the compiler reports that.
//!
//! Source: The Rust Reference "Functions"; ARCHITECTURE.md "Layout of the tree".

use std::ops::RangeInclusive;

use syn::visit::{self, Visit};
use syn::{Attribute, Block, FnArg, ImplItemFn, ItemFn, ItemMod, Pat, Signature, TraitItemFn};

use super::{File, Finding, Tree};

/// A function: free, method, or of a trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Line of its signature.
    pub line: usize,
    /// Lines between its braces; `None` for a function without a body.
    pub body: Option<RangeInclusive<usize>>,
    /// Parameters that are patterns of a tuple.
    pub tuples: usize,
    /// Whether it stands in tests.
    pub is_test: bool,
}

/// The functions of a file, in order.
#[must_use]
pub fn functions(file: &File) -> Vec<Function> {
    let mut found = Finder { functions: Vec::new(), in_tests: file.is_test() };
    if let Ok(parsed) = syn::parse_file(&file.text) {
        found.visit_file(&parsed);
    }
    found.functions
}

/// No parameter is the pattern of a tuple: a struct's fields have names, a tuple's only types.
#[must_use]
pub fn tuple_parameters(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in functions(file).iter().filter(|function| function.tuples > 0) {
            let what = format!(
                "`{}` takes a tuple apart in its signature: name a struct, or take each by itself",
                function.name
            );
            findings.push(Finding::new(file, function.line, what));
        }
    }
    findings
}

/// Whether an item with these attributes is compiled for tests only.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.tokens.clone().into_iter().any(|token| says_test(&token))
    })
}

fn says_test(token: &proc_macro2::TokenTree) -> bool {
    match token {
        proc_macro2::TokenTree::Ident(word) => word == "test",
        // `all(test, loom)` and the like nest
        proc_macro2::TokenTree::Group(group) => group.stream().into_iter().any(|t| says_test(&t)),
        _ => false,
    }
}

/// Whether a parameter takes a tuple apart, behind a reference or not.
fn is_tuple(pattern: &Pat) -> bool {
    match pattern {
        Pat::Tuple(_) => true,
        Pat::Reference(reference) => is_tuple(&reference.pat),
        Pat::Paren(inner) => is_tuple(&inner.pat),
        _ => false,
    }
}

struct Finder {
    functions: Vec<Function>,
    in_tests: bool,
}

impl Finder {
    fn add(&mut self, signature: &Signature, body: Option<&Block>) {
        let is_pattern =
            |input: &&FnArg| matches!(input, FnArg::Typed(typed) if is_tuple(&typed.pat));
        let braces = body.map(|block| {
            // the lines of the braces themselves are not counted
            let first = block.brace_token.span.open().end().line + 1;
            first..=block.brace_token.span.close().start().line.saturating_sub(1)
        });
        self.functions.push(Function {
            name: signature.ident.to_string(),
            line: signature.fn_token.span.start().line,
            body: braces,
            tuples: signature.inputs.iter().filter(is_pattern).count(),
            is_test: self.in_tests,
        });
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        let before = self.in_tests;
        self.in_tests |= is_for_tests(&module.attrs);
        // a module of tests may have modules inside: the flag goes back afterwards
        visit::visit_item_mod(self, module);
        self.in_tests = before;
    }

    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.add(&function.sig, Some(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.add(&function.sig, Some(&function.block));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        self.add(&function.sig, function.default.as_ref());
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Function> {
        functions(&Tree::of(&[("a/src/b.rs", text)]).files[0])
    }

    #[test]
    fn a_tuple_is_found_in_signatures_and_left_alone_elsewhere() {
        #[rustfmt::skip] // columns: name, text, parameters that are tuples
        let cases = [
            ("plain", "fn f(a: u8, b: (u8, u8)) {}", 0),
            ("pattern", "fn f((a, b): (u8, u8)) {}", 1),
            ("by reference", "fn f(&(a, b): &(u8, u8), (c, d): (u8, u8)) {}", 2),
            ("of a method", "impl A { fn f(&self, (a, b): (u8, u8)) {} }", 1),
            ("of a trait", "trait A { fn f(&self, _: u8) { } fn g(&self, (a, b): (u8, u8)) {} }", 1),
            ("in a body", "fn f() { fn g((a, b): (u8, u8)) {} }", 1),
            ("of a struct", "fn f(A { a, .. }: A) {}", 0),
            ("of a tuple struct", "fn f(A(a, b): A) {}", 0),
            ("of a closure", "fn f() { g(|(a, b)| a + b) }", 0),
            ("in a text", "fn f() { \"fn g((a, b): (u8, u8)) {}\"; }", 0),
            ("no Rust", "fn f((a, b", 0),
        ];
        for (name, text, want) in cases {
            let tuples: usize = found(text).iter().map(|function| function.tuples).sum();
            assert_eq!(tuples, want, "{name}");
            let tree = Tree::of(&[("a/tests/b.rs", text)]);
            assert_eq!(tuple_parameters(&tree).is_empty(), want == 0, "{name}, in tests");
        }
    }

    #[test]
    fn bodies_have_the_lines_between_their_braces_and_tests_are_told_apart() {
        let text = "fn a(\n    b: u8,\n) {\n    c();\n    d();\n}\n#[cfg(all(test, loom))]\nmod tests {\n    fn e() {\n        f();\n    }\n}\n\
                    trait F {\n    fn g();\n}\n";
        let told: Vec<_> =
            found(text).into_iter().map(|f| (f.name, f.line, f.body, f.is_test)).collect();
        let want = [
            ("a".to_owned(), 1, Some(4..=5), false),
            ("e".to_owned(), 9, Some(10..=10), true),
            ("g".to_owned(), 14, None, false),
        ];
        assert_eq!(told, want);
    }
}
