//! Ids with their tokens, as `complete_many` and `fail_many` are given them.

use crate::call::Call;
use crate::checks;
use crate::failure::{Failure, Outcome};
use std::collections::HashMap;

/// The id and token of a verb for a single task.
pub fn single(call: &Call) -> Outcome<(i64, i64)> {
    Ok((checks::required("id", call.bigint(0))?, checks::required("token", call.bigint(1))?))
}

pub struct Pairs {
    /// id, token, and the position in the caller's arrays.
    pairs: Vec<(i64, i64, usize)>,
}

/// Pairs with different ids, sorted by id: what one statement takes.
pub struct Layer {
    pub ids: Vec<i64>,
    pub tokens: Vec<i64>,
    positions: Vec<usize>,
}

impl Layer {
    /// Where an id stood in the caller's arrays.
    pub fn position(&self, id: i64) -> Option<usize> {
        self.ids.binary_search(&id).ok().map(|at| self.positions[at])
    }

    /// Something the caller gave for each pair, in the order of the ids.
    pub fn in_order<T: Clone>(&self, given: &[T]) -> Vec<T> {
        self.positions.iter().map(|at| given[*at].clone()).collect()
    }
}

impl Pairs {
    /// Reads the arrays `ids` and `tokens`.
    pub fn from_call(call: &Call) -> Outcome<Self> {
        let ids = checks::required("ids", call.bigints(0))?;
        let tokens = checks::required("tokens", call.bigints(1))?;
        Self::new(ids, tokens)
    }

    fn new(ids: Vec<Option<i64>>, tokens: Vec<Option<i64>>) -> Outcome<Self> {
        if ids.len() != tokens.len() {
            return Err(unequal("tokens", tokens.len(), ids.len()));
        }
        let pairs = ids
            .into_iter()
            .zip(tokens)
            .enumerate()
            .map(|(at, (id, token))| match (id, token) {
                (Some(id), Some(token)) => Ok((id, token, at)),
                _ => Err(Failure::invalid("id or token is null", "Give every id with its token.")
                    .at_element(at + 1)),
            })
            .collect::<Outcome<Vec<_>>>()?;
        Ok(Pairs { pairs })
    }

    /// A further array must be as long as the ids.
    pub fn check_length(&self, what: &str, length: Option<usize>) -> Outcome<()> {
        match length {
            Some(length) if length != self.pairs.len() => Err(unequal(what, length, self.pairs.len())),
            _ => Ok(()),
        }
    }

    /// The pairs as layers: an id that was given twice stands in two of them, in its order.
    pub fn layers(&self) -> Vec<Layer> {
        let mut seen: HashMap<i64, usize> = HashMap::new();
        let mut layers: Vec<Vec<(i64, i64, usize)>> = Vec::new();
        for pair in &self.pairs {
            let depth = seen.entry(pair.0).and_modify(|d| *d += 1).or_insert(0);
            if layers.len() <= *depth {
                layers.push(Vec::new());
            }
            layers[*depth].push(*pair);
        }
        layers
            .into_iter()
            .map(|mut layer| {
                layer.sort_unstable();
                Layer {
                    ids: layer.iter().map(|p| p.0).collect(),
                    tokens: layer.iter().map(|p| p.1).collect(),
                    positions: layer.iter().map(|p| p.2).collect(),
                }
            })
            .collect()
    }
}

fn unequal(what: &str, length: usize, ids: usize) -> Failure {
    Failure::invalid(
        format!("{what} has {length} elements, but ids has {ids}"),
        "Give arrays of the same length: element by element they belong together.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_sorted_and_hold_each_id_once() {
        let ids = vec![Some(3), Some(1), Some(3)];
        let tokens = vec![Some(30), Some(10), Some(31)];
        let layers = Pairs::new(ids, tokens).map(|p| p.layers()).unwrap_or_default();
        assert_eq!(layers.len(), 2);
        assert_eq!((&layers[0].ids, &layers[0].tokens), (&vec![1, 3], &vec![10, 30]));
        assert_eq!((&layers[1].ids, &layers[1].tokens), (&vec![3], &vec![31]));
        assert_eq!(layers[0].position(3), Some(0));
        assert_eq!(layers[1].position(3), Some(2));
        assert_eq!(layers[0].in_order(&["a", "b", "c"]), ["b", "a"]);
    }

    #[test]
    fn unequal_arrays_and_nulls_are_refused() {
        assert!(Pairs::new(vec![Some(1)], vec![]).is_err());
        assert!(Pairs::new(vec![Some(1)], vec![None]).is_err());
    }
}
