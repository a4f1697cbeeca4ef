//! From checked expressions to code: variables become numbers, selections become attributes, and constants are folded.
//!
//! Folding changes the cost, so exactly what the original folds is folded: list and map literals of constants, type
//! conversions of constants, `in` over lists of constants, and constant patterns.

use std::sync::Arc;

use super::constants::ConstantSet;
use super::plan::{
    Attribute, AttributeRoot, BinaryOperator, CallCode, CallCost, Code, CodeId, EntryCode,
    FoldCode, FoldCondition, OperatorCost, Qualifier, QualifierKey, UnaryOperator,
};
use super::{CelDeclarations, CelFunctionDecl, text_search};
use crate::checker::{Checked, Reference};
use crate::pattern_budget::PatternBudget;
use crate::syntax::{Ast, Expr, ExprId, Fold, MapEntry};
use crate::value::{
    CelError, CelMap, CelValue, CelWork, DEFAULT_WORK_LIMIT, double_to_int, double_to_uint,
};

/// The result of compiling.
pub(super) struct CompiledCode {
    pub(super) code: Vec<Code>,
    pub(super) root: CodeId,
    /// For each variable of a comprehension, the code of its initial value, if it is an accumulator.
    pub(super) inits: Vec<Option<CodeId>>,
    /// The numbers of the variables that the expression uses.
    pub(super) used: Vec<u32>,
}

/// Functions that convert types. Calls with a constant are folded.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

pub(super) fn compile(
    ast: &Ast,
    checked: &Checked,
    declarations: &CelDeclarations,
    budget: &mut PatternBudget,
) -> Result<CompiledCode, CelError> {
    let mut compiler = Compiler {
        ast,
        checked,
        declarations,
        budget,
        code: Vec::new(),
        inits: vec![None; checked.locals as usize],
        used: Vec::new(),
    };
    let root = compiler.compile(ast.root)?;
    for code in &mut compiler.code {
        if let Some(number) = plain_local(code) {
            *code = Code::Local(number);
        }
        if let Code::Attribute(attribute) = code {
            attribute.qualifiers.shrink_to_fit();
        }
    }
    text_search::find(&mut compiler.code, &compiler.inits);
    // A gateway may hold tens of thousands of programs.
    compiler.code.shrink_to_fit();
    Ok(CompiledCode {
        code: compiler.code,
        root,
        inits: compiler.inits,
        used: compiler.used,
    })
}

pub(super) struct Compiler<'c> {
    ast: &'c Ast,
    checked: &'c Checked,
    declarations: &'c CelDeclarations,
    /// What constant patterns may take.
    budget: &'c mut PatternBudget,
    code: Vec<Code>,
    inits: Vec<Option<CodeId>>,
    used: Vec<u32>,
}

impl Compiler<'_> {
    fn compile(&mut self, id: ExprId) -> Result<CodeId, CelError> {
        match self.ast.expr(id) {
            Expr::Error => Err(CelError::new("expression does not parse")),
            Expr::Literal(value) => Ok(self.push(Code::Const(value.clone()))),
            Expr::Ident(_) => self.name(id),
            Expr::Select { .. } => self.select(id),
            Expr::Call { .. } => self.call(id),
            Expr::List { elements, optional } => self.list(elements, optional),
            Expr::Map(entries) => self.map(entries),
            Expr::Object { name, fields } => {
                let fields: Result<_, _> = fields
                    .iter()
                    .map(|field| self.compile(field.value))
                    .collect();
                let name = name.trim_start_matches('.').into();
                Ok(self.push(Code::Object(name, fields?)))
            }
            Expr::Fold(fold) => self.fold(id, fold),
        }
    }

    fn push(&mut self, code: Code) -> CodeId {
        let id = CodeId::of_index(self.code.len());
        self.code.push(code);
        id
    }

    fn constant(&self, id: CodeId) -> Option<&CelValue<'static>> {
        match &self.code[id.index()] {
            Code::Const(value) => Some(value),
            _ => None,
        }
    }

    /// A name that the checker resolved.
    fn name(&mut self, id: ExprId) -> Result<CodeId, CelError> {
        let root = match self.checked.references.get(&id) {
            Some(Reference::Variable(number)) => {
                if !self.used.contains(number) {
                    self.used.push(*number);
                }
                AttributeRoot::Variable(*number)
            }
            Some(Reference::Local(number)) => AttributeRoot::Local(*number),
            Some(Reference::Constant(value)) => return Ok(self.push(Code::Const(value.clone()))),
            Some(Reference::Undefined(name)) => {
                return Err(CelError::new(format!(
                    "reference to undefined type: {name}"
                )));
            }
            Some(Reference::Call { .. }) | None => {
                return Err(CelError::new("name without a meaning"));
            }
        };
        Ok(self.root(root))
    }

    fn root(&mut self, root: AttributeRoot) -> CodeId {
        self.push(Code::Attribute(Box::new(Attribute {
            root,
            qualifiers: Vec::new(),
            test_only: false,
        })))
    }

    fn select(&mut self, id: ExprId) -> Result<CodeId, CelError> {
        // The checker resolved `a.b` as one qualified name: no field of `a` is read.
        if self.checked.references.contains_key(&id) {
            return self.name(id);
        }
        let Expr::Select {
            operand,
            field,
            test_only,
        } = self.ast.expr(id)
        else {
            return Err(CelError::new("not a selection"));
        };
        let operand = self.compile(*operand)?;
        let key = QualifierKey::Field(field.clone());
        let id = self.qualified(operand, key, false);
        if *test_only && let Code::Attribute(attribute) = &mut self.code[id.index()] {
            attribute.test_only = true;
        }
        Ok(id)
    }

    /// `operand` with one more selection or index.
    fn qualified(&mut self, operand: CodeId, key: QualifierKey, optional: bool) -> CodeId {
        let id = match &self.code[operand.index()] {
            Code::Attribute(attribute) if !attribute.test_only => operand,
            _ => self.root(AttributeRoot::Code(operand)),
        };
        if let Code::Attribute(attribute) = &mut self.code[id.index()] {
            attribute.qualifiers.push(Qualifier { key, optional });
        }
        id
    }

    fn index(&mut self, args: &[ExprId], optional: bool) -> Result<CodeId, CelError> {
        let operand = self.compile(args[0])?;
        let index = self.compile(args[1])?;
        let key = match self.constant(index) {
            Some(CelValue::String(text)) => QualifierKey::Field((**text).into()),
            Some(
                key @ (CelValue::Int(_)
                | CelValue::Uint(_)
                | CelValue::Bool(_)
                | CelValue::Double(_)),
            ) => QualifierKey::Const(key.clone()),
            Some(other) => {
                let of = super::attributes::go_type(other);
                return Err(CelError::new(format!("invalid qualifier type: {of}")));
            }
            None => QualifierKey::Code(index),
        };
        Ok(self.qualified(operand, key, optional))
    }

    fn all(&mut self, ids: &[ExprId]) -> Result<Box<[CodeId]>, CelError> {
        ids.iter().map(|id| self.compile(*id)).collect()
    }

    fn call(&mut self, id: ExprId) -> Result<CodeId, CelError> {
        let Expr::Call {
            function,
            target,
            args,
        } = self.ast.expr(id)
        else {
            return Err(CelError::new("not a call"));
        };
        match &**function {
            "_&&_" => {
                let terms = self.all(args)?;
                return Ok(self.push(Code::And(terms)));
            }
            "_||_" => {
                let terms = self.all(args)?;
                return Ok(self.push(Code::Or(terms)));
            }
            "_?_:_" => return self.conditional(args),
            "_[_]" => return self.index(args, false),
            "_[?_]" | "_?._" => return self.index(args, true),
            _ => {}
        }
        let Some(Reference::Call {
            function,
            overloads,
            namespaced,
        }) = self.checked.references.get(&id)
        else {
            return Err(CelError::new("call without a meaning"));
        };
        let mut all = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target
            && !namespaced
        {
            all.push(self.compile(*target)?);
        }
        for arg in args {
            all.push(self.compile(*arg)?);
        }
        let function = self.declarations.functions.get(function);
        let Some(function) = function.cloned() else {
            return Err(CelError::new("function without a declaration"));
        };
        self.function_call(function, overloads, &all)
    }

    fn conditional(&mut self, args: &[ExprId]) -> Result<CodeId, CelError> {
        let condition = self.compile(args[0])?;
        let yes = self.compile(args[1])?;
        let no = self.compile(args[2])?;
        Ok(self.root(AttributeRoot::Conditional { condition, yes, no }))
    }

    fn function_call(
        &mut self,
        function: Arc<CelFunctionDecl>,
        overloads: &[usize],
        args: &[CodeId],
    ) -> Result<CodeId, CelError> {
        let overload = match overloads {
            [only] => Some(*only),
            _ => None,
        };
        let overload_id = overload
            .map(|at| &*function.overloads[at].id)
            .unwrap_or_default();
        if let Some(code) = self.operator(&function.name, overload_id, args) {
            return code;
        }
        match (&*function.name, args) {
            ("or", [left, right]) if matches!(overload_id, "" | "optional_or_optional") => {
                return Ok(self.push(Code::OptionalOr(*left, *right)));
            }
            ("orValue", [left, right]) if matches!(overload_id, "" | "optional_orValue_value") => {
                return Ok(self.push(Code::OptionalOrValue(*left, *right)));
            }
            _ => {}
        }
        let prepared = match function.prepare {
            Some((at, prepare)) => {
                match args.get(at).and_then(|arg| self.constant(*arg)).cloned() {
                    Some(constant) => prepare(&constant, self.budget)?,
                    None => None,
                }
            }
            None => None,
        };
        let sole = overload.or((function.singleton || function.overloads.len() == 1).then_some(0));
        let call = CallCode {
            overload: sole,
            args: args.into(),
            cost: CallCost {
                overload: overload.and_then(|at| function.overloads[at].cost),
                function: function.cost,
            },
            // cel-go evaluates both arguments of a binary call before it looks for an error, those of others one by one.
            stops_early: args.len() > 2
                || prepared.is_some()
                || sole.is_none()
                || function.one_by_one,
            prepared,
            function,
        };
        self.folded(call)
    }

    /// A call, or its value if it converts a constant.
    fn folded(&mut self, call: CallCode) -> Result<CodeId, CelError> {
        if let [arg] = *call.args
            && CONVERSIONS.contains(&&*call.function.name)
            && let Some(constant) = self.constant(arg)
        {
            let args = [constant.clone()];
            let value = match call.overload {
                Some(at) => match &call.function.overloads[at].function {
                    Some(function) => function.call(&args)?,
                    None => return Err(CelError::no_such_overload()),
                },
                None => call
                    .function
                    .dispatch(&args, &mut CelWork::new(DEFAULT_WORK_LIMIT, None))?,
            };
            return Ok(self.push(Code::Const(value)));
        }
        Ok(self.push(Code::Call(Box::new(call))))
    }

    /// The code of an operator, if `function` is one.
    fn operator(
        &mut self,
        function: &str,
        overload: &str,
        args: &[CodeId],
    ) -> Option<Result<CodeId, CelError>> {
        let unary = match function {
            "!_" => Some(UnaryOperator::Not),
            "-_" => Some(UnaryOperator::Negate),
            "@not_strictly_false" => Some(UnaryOperator::NotStrictlyFalse),
            _ => None,
        };
        if let (Some(operator), [operand]) = (unary, args) {
            return Some(Ok(self.push(Code::Unary(operator, *operand))));
        }
        let operator = match function {
            "_+_" => BinaryOperator::Add,
            "_-_" => BinaryOperator::Subtract,
            "_*_" => BinaryOperator::Multiply,
            "_/_" => BinaryOperator::Divide,
            "_%_" => BinaryOperator::Modulo,
            "_<_" => BinaryOperator::Less,
            "_<=_" => BinaryOperator::LessEquals,
            "_>_" => BinaryOperator::Greater,
            "_>=_" => BinaryOperator::GreaterEquals,
            "_==_" => BinaryOperator::Equals,
            "_!=_" => BinaryOperator::NotEquals,
            "@in" => BinaryOperator::In,
            _ => return None,
        };
        let [left, right] = *args else {
            return None;
        };
        if overload == "in_list"
            && let Some(code) = self.membership(left, right)
        {
            return Some(Ok(code));
        }
        let cost = cost_of_operator(operator, overload);
        Some(Ok(self.push(Code::Binary {
            operator,
            cost,
            left,
            right,
        })))
    }

    /// `value in [constants]` as a lookup in a set, if all constants are of primitive types.
    fn membership(&mut self, value: CodeId, list: CodeId) -> Option<CodeId> {
        let Some(CelValue::List(list)) = self.constant(list) else {
            return None;
        };
        if list.is_empty() {
            return Some(self.push(Code::Const(CelValue::Bool(false))));
        }
        let mut all = Vec::with_capacity(list.len());
        for element in list {
            if matches!(element, CelValue::Double(of) if of.is_nan()) {
                continue;
            }
            let primitive = matches!(
                element,
                CelValue::Bool(_)
                    | CelValue::Int(_)
                    | CelValue::Uint(_)
                    | CelValue::Double(_)
                    | CelValue::String(_)
            );
            if !primitive {
                return None;
            }
            add_equal_numbers(&element, &mut all);
            all.push(element);
        }
        Some(self.push(Code::InSet(value, Box::new(ConstantSet::new(all)))))
    }

    fn list(&mut self, elements: &[ExprId], optional: &[bool]) -> Result<CodeId, CelError> {
        let elements = self.all(elements)?;
        let constants: Option<Vec<_>> = elements
            .iter()
            .map(|element| self.constant(*element).cloned())
            .collect();
        if let Some(constants) = constants
            && optional.is_empty()
        {
            let list = CelValue::list(constants)?;
            return Ok(self.push(Code::Const(list)));
        }
        let optional = optional.into();
        Ok(self.push(Code::List { elements, optional }))
    }

    fn map(&mut self, entries: &[MapEntry]) -> Result<CodeId, CelError> {
        let mut codes = Vec::with_capacity(entries.len());
        for entry in entries {
            codes.push(EntryCode {
                key: self.compile(entry.key)?,
                value: self.compile(entry.value)?,
                optional: entry.optional,
            });
        }
        let constants: Option<Vec<_>> = codes
            .iter()
            .map(|entry| {
                let key = self.constant(entry.key)?.clone();
                let value = self.constant(entry.value)?.clone();
                (!entry.optional).then_some((key, value))
            })
            .collect();
        if let Some(constants) = constants {
            let map = CelValue::Map(CelMap::new(constants)?);
            return Ok(self.push(Code::Const(map)));
        }
        Ok(self.push(Code::Map(codes.into())))
    }

    fn fold(&mut self, id: ExprId, fold: &Fold) -> Result<CodeId, CelError> {
        let Some(locals) = self.checked.folds.get(&id).copied() else {
            return Err(CelError::new("comprehension without variables"));
        };
        let init = self.compile(fold.init)?;
        self.inits[locals.accumulator as usize] = Some(init);
        let range = self.compile(fold.range)?;
        let condition = self.compile(fold.condition)?;
        let step = self.compile(fold.step)?;
        // A step that copied the accumulator would make a macro over a list quadratic.
        self.grow_in_place(step, locals.accumulator);
        let condition = self.fold_condition(condition, locals.accumulator);
        let result = self.compile(fold.result)?;
        Ok(self.push(Code::Fold(Box::new(FoldCode {
            range,
            accumulator: locals.accumulator,
            variable: locals.variable,
            second_variable: locals.second_variable,
            condition,
            step,
            result,
            searched: None,
        }))))
    }

    /// The condition of a comprehension, in the forms that the macros of the language have.
    fn fold_condition(&self, condition: CodeId, accumulator: u32) -> FoldCondition {
        let code = |id: CodeId| &self.code[id.index()];
        let is_accumulator = |id: CodeId| plain_local(code(id)) == Some(accumulator);
        match code(condition) {
            Code::Const(CelValue::Bool(true)) => FoldCondition::Always,
            Code::Unary(UnaryOperator::NotStrictlyFalse, of) if is_accumulator(*of) => {
                FoldCondition::Unless(false)
            }
            Code::Unary(UnaryOperator::NotStrictlyFalse, of) => match code(*of) {
                Code::Unary(UnaryOperator::Not, of) if is_accumulator(*of) => {
                    FoldCondition::Unless(true)
                }
                _ => FoldCondition::Code(condition),
            },
            _ => FoldCondition::Code(condition),
        }
    }

    /// Lets the accumulator grow in place, if the step only adds something to it.
    fn grow_in_place(&mut self, step: CodeId, accumulator: u32) {
        let is_accumulator =
            |code: &[Code], id: CodeId| plain_local(&code[id.index()]) == Some(accumulator);
        let grown = match &self.code[step.index()] {
            Code::Attribute(of) => {
                if let AttributeRoot::Conditional { yes, .. } = of.root
                    && of.qualifiers.is_empty()
                {
                    self.grow_in_place(yes, accumulator);
                }
                return;
            }
            Code::Binary {
                operator: BinaryOperator::Add,
                left,
                right,
                ..
            } if is_accumulator(&self.code, *left) && self.is_list(*right) => Code::Append {
                accumulator,
                list: *right,
            },
            Code::Call(call)
                if &*call.function.name == "cel.@mapInsert"
                    && call
                        .args
                        .first()
                        .is_some_and(|of| is_accumulator(&self.code, *of)) =>
            {
                Code::Insert {
                    accumulator,
                    args: call.args[1..].into(),
                }
            }
            _ => return,
        };
        self.code[step.index()] = grown;
    }

    fn is_list(&self, id: CodeId) -> bool {
        matches!(
            &self.code[id.index()],
            Code::List { .. } | Code::Const(CelValue::List(_))
        )
    }
}

/// The number of the comprehension's variable that `code` is without any qualifier.
fn plain_local(code: &Code) -> Option<u32> {
    match code {
        Code::Attribute(of) if of.qualifiers.is_empty() && !of.test_only => match of.root {
            AttributeRoot::Local(number) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

fn cost_of_operator(operator: BinaryOperator, overload: &str) -> OperatorCost {
    match (operator, overload) {
        (BinaryOperator::Equals | BinaryOperator::NotEquals, _) => OperatorCost::Equality,
        (BinaryOperator::Add, "add_string" | "add_bytes") => OperatorCost::Sum,
        (BinaryOperator::In, "in_list") => OperatorCost::ListSize,
        (_, of) if of.ends_with("_string") || of.ends_with("_bytes") => OperatorCost::Smaller,
        _ => OperatorCost::One,
    }
}

/// Adds the numbers of other types that equal `element`, as the original finds them.
#[expect(clippy::cast_precision_loss, reason = "as the original converts")]
fn add_equal_numbers(element: &CelValue<'_>, all: &mut Vec<CelValue<'_>>) {
    let mut add = |value| all.push(value);
    match element {
        CelValue::Int(value) => {
            add(CelValue::Double(*value as f64));
            if let Ok(value) = u64::try_from(*value) {
                add(CelValue::Uint(value));
            }
        }
        CelValue::Uint(value) => {
            add(CelValue::Double(*value as f64));
            if let Ok(value) = i64::try_from(*value) {
                add(CelValue::Int(value));
            }
        }
        CelValue::Double(value) => {
            if let Some(value) = double_to_int(*value) {
                add(CelValue::Int(value));
            }
            if let Some(value) = double_to_uint(*value) {
                add(CelValue::Uint(value));
            }
        }
        _ => {}
    }
}
