//! What the expressions of a policy may read.

use std::collections::HashMap;
use std::sync::LazyLock;

use fairgate_cel::{CelOrigins, CelReads, CelStep};
use fairgate_objects::schema::UnreadParts;

use crate::environment::VARIABLES;
use crate::expression::PolicyExpression;
use crate::observer::ExpressionRole;

/// Shows what each expression of a policy may read: first the variables in their order, in which each sees those before it, and then
/// the others. A variable counts where it is used.
pub(crate) fn visit<'p>(
    variables: impl Iterator<Item = &'p (String, PolicyExpression)>,
    others: impl Iterator<Item = ((ExpressionRole, usize), &'p PolicyExpression)>,
    visit: &mut dyn FnMut((ExpressionRole, usize), CelReads),
) {
    let mut values: HashMap<&str, CelOrigins> = HashMap::new();
    for (index, (name, expression)) in variables.enumerate() {
        let (reads, value) = of_expression(expression, &values);
        // Which of two with one name others see depends on the order of evaluation.
        let value = if values.contains_key(&**name) {
            CelOrigins::anywhere()
        } else {
            value
        };
        values.insert(name, value);
        visit((ExpressionRole::Variable, index), reads);
    }
    for (place, expression) in others {
        let (mut reads, value) = of_expression(expression, &values);
        reads.add_whole(value);
        visit(place, reads);
    }
}

/// What an expression reads if the variables come from `values`, and where its own value comes from. One that does not compile reads
/// nothing.
fn of_expression(
    expression: &PolicyExpression,
    values: &HashMap<&str, CelOrigins>,
) -> (CelReads, CelOrigins) {
    let of_variable = |name: &str| values.get(name).cloned().unwrap_or_default();
    match &expression.program {
        Ok(program) => program.reads(VARIABLES, &of_variable),
        Err(_) => Default::default(),
    }
}

/// Whether the name of the object may be read.
pub(crate) fn may_read_name(reads: &CelReads) -> bool {
    let may_read = |path: &[&str]| reads.may_read(&CelStep::path(path));
    may_read(&["object", "metadata", "name"]) || may_read(&["request", "name"])
}

/// Whether a field of the object may be read that has a default, or that depends on one.
///
/// Metadata has no defaults, but for the labels of some kinds. Whether the others are there decides what counts as a change.
pub(crate) fn may_read_defaults(reads: &CelReads) -> bool {
    const WITHOUT: [&str; 3] = ["apiVersion", "kind", "metadata"];
    const TEMPLATES: &str = "deprecated.daemonset.template.generation";
    let may_read = |path: &[&str]| reads.may_read(&CelStep::path(path));
    let members = reads.members_of("object");
    members.is_none_or(|all| all.iter().any(|member| !WITHOUT.contains(member)))
        || may_read(&["object", "metadata", "generation"])
        || may_read(&["object", "metadata", "annotations", TEMPLATES])
}

/// Whether the owners of the fields of the object may be read.
pub(crate) fn may_read_owners(reads: &CelReads) -> bool {
    reads.may_read(&CelStep::path(&["object", "metadata", "managedFields"]))
}

/// The parts of the object that are not read, and on which nothing depends that is.
pub(crate) fn unread_parts(reads: &CelReads) -> UnreadParts {
    static PATHS: LazyLock<Vec<(UnreadParts, Vec<CelStep>)>> = LazyLock::new(|| {
        let paths = UnreadParts::paths();
        let of_object = |path: Vec<_>| CelStep::path(&[&["object"], &*path].concat());
        paths.map(|(part, path)| (part, of_object(path))).collect()
    });
    let read = PATHS.iter().filter(|(_, path)| reads.may_read(path));
    read.fold(UnreadParts::ALL, |unread, (part, _)| unread.without(*part))
}
