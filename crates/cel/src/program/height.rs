//! The depth of code, which limits the recursion of its evaluation.

use super::plan::{Attribute, AttributeRoot, Code, CodeId, FoldCondition, QualifierKey};

/// The maximum number of nested evaluations when `root` is evaluated.
///
/// It recurses as deep as the evaluation itself, and visits each piece of code once.
pub(super) fn height(code: &[Code], inits: &[Option<CodeId>], root: CodeId) -> u32 {
    let mut heights = Heights {
        code,
        known: vec![None; code.len()],
    };
    let accumulators = inits.iter().flatten().map(|init| heights.of(*init)).max();
    heights.of(root).saturating_add(accumulators.unwrap_or(0))
}

struct Heights<'c> {
    code: &'c [Code],
    known: Vec<Option<u32>>,
}

impl Heights<'_> {
    fn of(&mut self, id: CodeId) -> u32 {
        if let Some(known) = self.known[id.index()] {
            return known;
        }
        let mut below = 0;
        for part in parts(&self.code[id.index()]) {
            below = below.max(self.of(part));
        }
        let height = below.saturating_add(1);
        self.known[id.index()] = Some(height);
        height
    }
}

/// The pieces of code that a piece evaluates.
fn parts(code: &Code) -> Vec<CodeId> {
    match code {
        Code::Const(_) | Code::Local(_) => Vec::new(),
        Code::Attribute(attribute) => of_attribute(attribute),
        Code::Unary(_, part) | Code::InSet(part, _) | Code::Append { list: part, .. } => {
            vec![*part]
        }
        Code::Binary { left, right, .. }
        | Code::OptionalOr(left, right)
        | Code::OptionalOrValue(left, right) => vec![*left, *right],
        Code::And(parts)
        | Code::Or(parts)
        | Code::Object(_, parts)
        | Code::List {
            elements: parts, ..
        }
        | Code::Insert { args: parts, .. } => parts.to_vec(),
        Code::Call(call) => call.args.to_vec(),
        Code::Map(entries) => entries
            .iter()
            .flat_map(|entry| [entry.key, entry.value])
            .collect(),
        Code::Fold(fold) => {
            let mut parts = vec![fold.range, fold.step, fold.result];
            if let FoldCondition::Code(condition) = fold.condition {
                parts.push(condition);
            }
            parts
        }
    }
}

fn of_attribute(attribute: &Attribute) -> Vec<CodeId> {
    let mut parts = match &attribute.root {
        AttributeRoot::Variable(_) | AttributeRoot::Local(_) => Vec::new(),
        AttributeRoot::Code(id) => vec![*id],
        AttributeRoot::Conditional { condition, yes, no } => vec![*condition, *yes, *no],
    };
    for qualifier in &attribute.qualifiers {
        if let QualifierKey::Code(id) = &qualifier.key {
            parts.push(*id);
        }
    }
    parts
}
