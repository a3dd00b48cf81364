// SPDX-License-Identifier: GPL-2.0-only
//! From words to formulas: operators bind as everywhere, comparisons may be chained.

use super::each::{self, Lists, Template};
use super::functions::{self, Function};
use super::lexer::{Token, tokens};
use super::{Comparison, Condition, Number, Operator};

/// Nobody writes formulas that are nested deeper.
const DEEPEST: u32 = 64;
/// Nor longer ones; this also limits nesting by operators rather than brackets.
const LONGEST: usize = 4_000;

/// Reads a number.
pub fn number(text: &str, lists: &Lists) -> Result<Number, String> {
    match whole(text, lists)? {
        Formula::Number(number) => Ok(number),
        Formula::Condition(_) => Err("found a condition, expected a number".to_string()),
    }
}

/// Reads a condition.
pub fn condition(text: &str, lists: &Lists) -> Result<Condition, String> {
    match whole(text, lists)? {
        Formula::Condition(condition) => Ok(condition),
        Formula::Number(_) => {
            Err("found a number, expected a condition such as [balance] < [cfs]".to_string())
        }
    }
}

/// A number or a condition.
enum Formula {
    Number(Number),
    Condition(Condition),
}

impl Formula {
    fn number(self, place: &str) -> Result<Number, String> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Condition(_) => Err(format!("before {place}: expected a number")),
        }
    }

    fn condition(self, place: &str) -> Result<Condition, String> {
        match self {
            Self::Condition(condition) => Ok(condition),
            Self::Number(_) => Err(format!("before {place}: expected a condition")),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<(Token, &'a str)>,
    lists: &'a Lists,
    at: usize,
    depth: u32,
}

fn whole(text: &str, lists: &Lists) -> Result<Formula, String> {
    if text.len() > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        lists,
        at: 0,
        depth: 0,
    };
    let formula = parser.either()?;
    match parser.at == parser.tokens.len() {
        true => Ok(formula),
        false => Err(format!(
            "at {}: expected an operator or the end",
            parser.place()
        )),
    }
}

impl Parser<'_> {
    /// Where it is, for messages.
    fn place(&self) -> String {
        match self.tokens.get(self.at) {
            Some((_, rest)) => format!("{rest:?}"),
            None => "the end".to_string(),
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is = match self.tokens.get(self.at) {
            Some((Token::Sign(found), _)) => *found == sign,
            Some((Token::Word(found), _)) => found == sign,
            _ => false,
        };
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(format!("at {}: expected {sign}", self.place())),
        }
    }

    fn either(&mut self) -> Result<Formula, String> {
        let mut left = self.both()?;
        while self.takes("or") {
            let a = left.condition("or")?;
            let b = self.both()?.condition(&self.place())?;
            left = Formula::Condition(Condition::Or(a.into(), b.into()));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Formula, String> {
        let mut left = self.negated()?;
        while self.takes("and") {
            let a = left.condition("and")?;
            let b = self.negated()?.condition(&self.place())?;
            left = Formula::Condition(Condition::And(a.into(), b.into()));
        }
        Ok(left)
    }

    fn negated(&mut self) -> Result<Formula, String> {
        if !self.takes("not") {
            return self.compared();
        }
        let of = self.deeper(Self::negated)?.condition(&self.place())?;
        Ok(Formula::Condition(Condition::Not(of.into())))
    }

    fn compared(&mut self) -> Result<Formula, String> {
        let first = self.sum()?;
        let Some(mut sign) = self.comparison() else {
            return Ok(first);
        };
        let mut left = first.number(&self.place())?;
        let mut all: Option<Condition> = None;
        loop {
            let right = self.sum()?.number(&self.place())?;
            let one = Condition::Compare(left, sign, right.clone());
            let chain = match all {
                None => one,
                Some(before) => Condition::And(before.into(), one.into()),
            };
            match self.comparison() {
                None => return Ok(Formula::Condition(chain)),
                Some(next) => (sign, left, all) = (next, right, Some(chain)),
            }
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let signs = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        let found = signs.into_iter().find(|(sign, _)| self.takes(sign));
        found.map(|(_, comparison)| comparison)
    }

    fn sum(&mut self) -> Result<Formula, String> {
        let signs = [("+", Operator::Plus), ("-", Operator::Minus)];
        self.operations(&signs, Self::product)
    }

    fn product(&mut self) -> Result<Formula, String> {
        let signs = [("*", Operator::Times), ("/", Operator::By)];
        self.operations(&signs, Self::signed)
    }

    fn operations(
        &mut self,
        signs: &[(&str, Operator)],
        operand: fn(&mut Self) -> Result<Formula, String>,
    ) -> Result<Formula, String> {
        let mut left = operand(self)?;
        while let Some((sign, operator)) = signs.iter().find(|(sign, _)| self.takes(sign)) {
            let a = left.number(sign)?;
            let b = operand(self)?.number(&self.place())?;
            left = Formula::Number(Number::Operation(a.into(), *operator, b.into()));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Formula, String> {
        if !self.takes("-") {
            return self.atom();
        }
        let of = self.deeper(Self::signed)?.number(&self.place())?;
        Ok(Formula::Number(Number::Negative(of.into())))
    }

    fn atom(&mut self) -> Result<Formula, String> {
        if self.takes("(") {
            let inner = self.deeper(Self::either)?;
            self.expect(")")?;
            return Ok(inner);
        }
        let place = self.place();
        let token = self.tokens.get(self.at).map(|(token, _)| token.clone());
        self.at += 1;
        match token {
            Some(Token::Number(value)) => Ok(Formula::Number(Number::Constant(value))),
            Some(Token::Measured(text)) => Ok(Formula::Number(Number::Measured(text))),
            // Also a function: "and" and "or" bind before one gets here, except at the beginning.
            Some(Token::Word(word)) if self.takes("(") => self.call(&word),
            Some(Token::Word(word)) if !["and", "or", "not"].contains(&word.as_str()) => {
                Ok(Formula::Number(Number::Name(word)))
            }
            _ => Err(format!(
                "at {place}: expected a number, a name, a function or [a measured value]"
            )),
        }
    }

    /// The call of a function whose opening bracket has been read.
    fn call(&mut self, name: &str) -> Result<Formula, String> {
        if name == "all" {
            let of = self.arguments(Formula::condition)?.into_iter();
            let all = of.reduce(|a, b| Condition::And(a.into(), b.into()));
            let all = all.ok_or_else(|| wrong_count("all", 0, "at least 1"))?;
            return Ok(Formula::Condition(all));
        }
        let of = self.arguments(Formula::number)?;
        if name == "near" {
            let three: Result<[Number; 3], _> = of.try_into();
            let three = three.map_err(|of| wrong_count("near", of.len(), "3"))?;
            return Ok(Formula::Condition(Condition::Near(three.into())));
        }
        if name == "greatest" {
            return match of.is_empty() {
                true => Err(wrong_count("greatest", 0, "at least 1")),
                false => Ok(Formula::Number(Number::Greatest(of))),
            };
        }
        let function: &'static Function = functions::find(name)?;
        match function.arguments.contains(&of.len()) {
            true => Ok(Formula::Number(Number::Call(function, of))),
            false => {
                let expected = match (function.arguments.start(), function.arguments.end()) {
                    (least, most) if least == most => least.to_string(),
                    (least, _) => format!("at least {least}"),
                };
                Err(wrong_count(name, of.len(), &expected))
            }
        }
    }

    /// What is between the brackets of a call, all of one kind.
    fn arguments<T: Template + Clone>(
        &mut self,
        kind: fn(Formula, &str) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut of = Vec::new();
        let mut first = true;
        while !self.takes(")") {
            if !std::mem::take(&mut first) && !self.takes(",") {
                return Err(format!("at {}: expected , or )", self.place()));
            }
            let mut written = vec![kind(self.deeper(Self::either)?, &self.place())?];
            while self.takes("for") {
                let (variables, list) = self.items()?;
                let items = each::list(self.lists, &list, &variables)?;
                let made = written.iter().map(|it| each::each(it, &variables, items));
                written = made.collect::<Result<Vec<_>, _>>()?.concat();
            }
            of.extend(written);
        }
        Ok(of)
    }

    /// What follows `for`: names, and the list that they go through.
    fn items(&mut self) -> Result<(Vec<String>, String), String> {
        let mut variables = vec![self.word()?];
        while self.takes(",") {
            variables.push(self.word()?);
        }
        self.expect("in")?;
        Ok((variables, self.word()?))
    }

    fn word(&mut self) -> Result<String, String> {
        let place = self.place();
        match self.tokens.get(self.at) {
            Some((Token::Word(word), _)) => {
                self.at += 1;
                Ok(word.clone())
            }
            _ => Err(format!("at {place}: expected a name")),
        }
    }

    fn deeper<T>(&mut self, parse: impl Fn(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("is nested deeper than {DEEPEST}"));
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }
}

fn wrong_count(name: &str, found: usize, expected: &str) -> String {
    format!("{name}(…): found {found} arguments, expected {expected}")
}
