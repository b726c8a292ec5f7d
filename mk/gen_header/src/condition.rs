//! Decides `#[cfg(feature = "standalone")]` and `#[cfg(not(feature = "standalone"))]`, wherever the sources
//! have them: at items, members, arguments of functions and of pointers to functions.
//!
//! Not here: any other condition.

use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, BareFnArg, Field, File, FnArg, Item, Signature, TypeBareFn, parse_quote};

/// See the module.
pub(crate) struct Condition {
    pub(crate) standalone: bool,
}

impl Condition {
    /// Takes the conditions out. False when one of them does not hold.
    fn holds(&self, attributes: &mut Vec<Attribute>) -> bool {
        let with: Attribute = parse_quote!(#[cfg(feature = "standalone")]);
        let without: Attribute = parse_quote!(#[cfg(not(feature = "standalone"))]);
        let mut holds = true;
        attributes.retain(|attribute| {
            let meant = [(&with, self.standalone), (&without, !self.standalone)];
            let known = meant.iter().find(|(known, _)| *known == attribute);
            holds &= known.is_none_or(|(_, holds)| *holds);
            known.is_none()
        });
        holds
    }

    fn keep<T: Clone, P: Default>(
        &self,
        list: &mut Punctuated<T, P>,
        attributes: impl Fn(&mut T) -> &mut Vec<Attribute>,
    ) {
        let all = std::mem::take(list).into_iter();
        *list = all
            .filter_map(|mut one| self.holds(attributes(&mut one)).then_some(one))
            .collect();
    }
}

impl VisitMut for Condition {
    fn visit_file_mut(&mut self, file: &mut File) {
        file.items.retain_mut(|item| match item {
            Item::Const(item) => self.holds(&mut item.attrs),
            Item::Fn(item) => self.holds(&mut item.attrs),
            Item::Type(item) => self.holds(&mut item.attrs),
            _ => true,
        });
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_fields_named_mut(&mut self, fields: &mut syn::FieldsNamed) {
        self.keep(&mut fields.named, |field: &mut Field| &mut field.attrs);
        visit_mut::visit_fields_named_mut(self, fields);
    }

    fn visit_signature_mut(&mut self, signature: &mut Signature) {
        self.keep(&mut signature.inputs, |argument| match argument {
            FnArg::Receiver(argument) => &mut argument.attrs,
            FnArg::Typed(argument) => &mut argument.attrs,
        });
        visit_mut::visit_signature_mut(self, signature);
    }

    fn visit_type_bare_fn_mut(&mut self, function: &mut TypeBareFn) {
        self.keep(&mut function.inputs, |argument: &mut BareFnArg| {
            &mut argument.attrs
        });
        visit_mut::visit_type_bare_fn_mut(self, function);
    }
}
