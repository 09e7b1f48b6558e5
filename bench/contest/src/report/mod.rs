//! Tables and figures of the results.

pub mod plots;

use comfy_table::{CellAlignment, Table, presets};

use crate::row::Row;

/// Prints one line per row.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "setting",
        "competitor",
        "rate %",
        "in time %",
        "missed",
        "violations",
        "delay mean/max ms",
        "jitter p99 ms",
        "load %",
        "others %",
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![row.setting.clone(), row.competitor.name().to_owned()];
    if row.refused.is_some() {
        cells.push("refused".to_owned());
        return cells;
    }
    let in_time = row.mean(|t| t.rate_in_time) / row.mean(|t| t.wanted).max(f64::MIN_POSITIVE);
    cells.extend([
        format!("{:.1}", 100.0 * row.achieved()),
        format!("{:.1}", 100.0 * in_time),
        format!("{}/{}", row.sum(|t| t.missed), row.sum(|t| t.periods)),
        format!("{}/{}", row.sum(|t| t.violations), row.sum(|t| t.windows)),
        format!("{:.2}/{:.2}", row.mean(|t| t.delay.mean) / 1e3, row.max(|t| t.delay.max) / 1e3),
        format!("{:.2}", row.max(|t| t.jitter.p99) / 1e3),
        format!("{:.1}", 100.0 * row.tasks.iter().map(|t| t.load).sum::<f64>()),
        format!("{:.1}", 100.0 * row.others),
    ]);
    cells
}
