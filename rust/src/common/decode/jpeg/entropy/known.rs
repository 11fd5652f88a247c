//! Tables of the codes seen last. Most encoders have the same ones for all pictures, and a table takes as long as a
//! thousand symbols.

use std::sync::{Arc, Mutex};

use super::code::{Class, Definition, Table};

/// Some 17 KiB each; a picture has up to four, and most have the four of ITU-T T.81, annex K.
const MOST_KNOWN: usize = 16;

// The last one used is last. Only tried, never waited for: a child that was forked while the lock was held goes without.
static KNOWN: Mutex<Vec<Arc<Table>>> = Mutex::new(Vec::new());

/// The table of a code; `None` if no such code exists.
pub fn table(definition: &Definition, class: Class) -> Option<Arc<Table>> {
    if let Some(table) = find(definition, class) {
        // Without the lock, which another thread may want meanwhile.
        table.fetch();
        return Some(table);
    }
    let table: Arc<Table> = Table::new(definition, class)?.into();
    if let Ok(mut known) = KNOWN.try_lock()
        && !known.iter().any(|table| table.is_of(definition, class))
    {
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push(Arc::clone(&table));
    }
    Some(table)
}

fn find(definition: &Definition, class: Class) -> Option<Arc<Table>> {
    let mut known = KNOWN.try_lock().ok()?;
    let found = known.iter().rposition(|table| table.is_of(definition, class))?;
    known[found..].rotate_left(1);
    known.last().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(symbol: u8) -> Definition {
        let mut definition = Definition { counts: [0; 17], symbols: [symbol; 256] };
        definition.counts[1] = 1;
        definition
    }

    #[test]
    fn each_code_has_its_table_and_few_are_kept() {
        for round in 0..3 {
            for symbol in 0..40 {
                for class in [Class::Dc, Class::Ac] {
                    let table = table(&code(symbol & 15), class).expect("a code");
                    assert!(table.is_of(&code(symbol & 15), class), "round {round}");
                }
            }
        }
        let known = KNOWN.lock().expect("no panic").len();
        assert!((1..=MOST_KNOWN).contains(&known), "{known}");
        assert!(table(&Definition { counts: [2; 17], symbols: [0; 256] }, Class::Ac).is_none());
    }
}
