//! Grids of tiles: which one a picture is squashed to.

/// `(columns, rows)` of the grid of `fewest` to `most` tiles whose aspect is closest to that of the picture.
///
/// As `find_closest_aspect_ratio` of InternVL, which many took over, in doubles. Grids are tried by their number of tiles;
/// no two of equally many are equally close and best.
pub fn closest_grid(
    (width, height): (usize, usize),
    fewest: u64,
    most: u64,
    tile_px: usize,
) -> (usize, usize) {
    let with = |tiles: u64| {
        (1..=tiles).filter(move |rows| tiles.is_multiple_of(*rows)).map(move |rows| (tiles / rows, rows))
    };
    let grids = (fewest..=most).flat_map(with);
    let aspect = width as f64 / height as f64;
    let area = width as f64 * height as f64;
    let (mut best, mut least) = ((1, 1), f64::INFINITY);
    for (columns, rows) in grids {
        let difference = (aspect - columns as f64 / rows as f64).abs();
        let tile_area = (tile_px * tile_px) as f64;
        let wins_tie = area > 0.5 * tile_area * (columns * rows) as f64;
        if difference < least || (difference == least && wins_tie) {
            (best, least) = ((columns as usize, rows as usize), difference);
        }
    }
    best
}

/// `(width, height)` of the candidate that keeps most of the picture's pixels, and wastes least of its own.
///
/// As `select_best_resolution` of LLaVA, in doubles; the first of equals.
pub fn best_resolution((width, height): (usize, usize), candidates: &[(usize, usize)]) -> (usize, usize) {
    let mut best: Option<((u64, u64), (usize, usize))> = None;
    for &(wide, high) in candidates {
        let scale = (wide as f64 / width as f64).min(high as f64 / height as f64);
        let fitted = |side: usize| (side as f64 * scale) as u64;
        let effective = (fitted(width) * fitted(height)).min(width as u64 * height as u64);
        let wasted = wide as u64 * high as u64 - effective;
        if best.is_none_or(|((most, least), _)| effective > most || (effective == most && wasted < least)) {
            best = Some(((effective, wasted), (wide, high)));
        }
    }
    best.map_or((width, height), |(_, size)| size)
}

/// `(width, height)` of a picture within `most`, one side of which it fills; the other is rounded up.
///
/// As `get_patch_output_size` of transformers' LLaVA-NeXT, in doubles.
pub fn within_rounded_up((width, height): (usize, usize), most: (usize, usize)) -> (usize, usize) {
    let (across, down) = (most.0 as f64 / width as f64, most.1 as f64 / height as f64);
    let raised = |side: usize, scale: f64, most: usize| ((side as f64 * scale).ceil() as usize).min(most);
    if across < down {
        (most.0, raised(height, across, most.1))
    } else {
        (raised(width, down, most.0), most.1)
    }
}

/// `(width, height)` of a picture within `most`, one side of which it fills; the other is cut.
///
/// As transformers' `get_max_res_without_distortion`, in doubles, cut to whole pixels, but at least one.
pub fn without_distortion((width, height): (usize, usize), most: (usize, usize)) -> (usize, usize) {
    let (across, down) = (most.0 as f64 / width as f64, most.1 as f64 / height as f64);
    let cut =
        |side: usize, scale: f64, most: usize| ((side as f64 * scale).floor() as usize).min(most).max(1);
    if across < down { (most.0, cut(height, across, most.1)) } else { (cut(width, down, most.0), most.1) }
}
