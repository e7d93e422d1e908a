//! Places the nodes of a graph on a picture, in layers (Sugiyama, Tagawa and Toda 1981).
//!
//! Edges that close a loop are set aside; the others lead from each layer to a lower one. An edge
//! that passes layers gets a place in each of them, so that it goes around the nodes there. Then
//! the order within layers is chosen, back and forth, by the places of the neighbors; at last nodes
//! move towards their neighbors as far as there is room.

/// A node, or a place that an edge passes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    /// The left edge and the top.
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    layer: usize,
}

/// The places of all nodes and edges.
#[derive(Debug)]
pub(super) struct Layout {
    /// Nodes, then places that edges pass.
    pub(super) places: Vec<Place>,
    /// For each edge, the places from its beginning to its end; for one that closes a loop, only
    /// both ends.
    pub(super) paths: Vec<Vec<usize>>,
    /// Whether each edge closes a loop.
    pub(super) back: Vec<bool>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The distance between nodes of a layer, and between layers.
const GAP: (f64, f64) = (24.0, 44.0);
/// The number of times that the order, and the places, are improved.
const SWEEPS: usize = 12;

/// Lays out nodes of these sizes; `edges` are (from, to), node 0 is at the top.
pub(super) fn layout(sizes: &[(f64, f64)], edges: &[(usize, usize)], first: usize) -> Layout {
    let back = back_edges(sizes.len(), edges, first);
    let layers = layers(sizes.len(), edges, &back);
    let mut places: Vec<Place> = sizes
        .iter()
        .zip(&layers)
        .map(|((width, height), layer)| Place {
            x: 0.0,
            y: 0.0,
            width: *width,
            height: *height,
            layer: *layer,
        })
        .collect();
    let mut paths = Vec::with_capacity(edges.len());
    let mut links = Vec::new();
    for (&(from, to), back) in edges.iter().zip(&back) {
        let mut path = vec![from];
        if !back {
            for layer in layers[from] + 1..layers[to] {
                path.push(places.len());
                places.push(Place { x: 0.0, y: 0.0, width: 8.0, height: 0.0, layer });
            }
        }
        path.push(to);
        if !back {
            links.extend(path.windows(2).map(|w| (w[0], w[1])));
        }
        paths.push(path);
    }
    let rows = order(&places, &links);
    let height = set_heights(&mut places, &rows, sizes.len());
    let width = set_places(&mut places, &rows, &links);
    Layout { places, paths, back, width, height }
}

/// Returns which edges lead back to a node on the path to them.
fn back_edges(count: usize, edges: &[(usize, usize)], first: usize) -> Vec<bool> {
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (i, edge) in edges.iter().enumerate() {
        from[edge.0].push(i);
    }
    let mut back = vec![false; edges.len()];
    // 0: not seen, 1: on the path, 2: done.
    let mut state = vec![0u8; count];
    for root in std::iter::once(first).chain(0..count) {
        if state.get(root) != Some(&0) {
            continue;
        }
        state[root] = 1;
        let mut way = vec![(root, 0usize)];
        while let Some((node, next)) = way.last_mut() {
            let Some(&edge) = from[*node].get(*next) else {
                state[*node] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            let to = edges[edge].1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    way.push((to, 0));
                }
                1 => back[edge] = true,
                _ => {}
            }
        }
    }
    back
}

/// Returns the layer of each node, which is below all nodes that lead to it.
fn layers(count: usize, edges: &[(usize, usize)], back: &[bool]) -> Vec<usize> {
    let forward = || edges.iter().zip(back).filter(|(_, back)| !**back).map(|(edge, _)| *edge);
    let mut waiting = vec![0usize; count];
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (a, b) in forward() {
        waiting[b] += 1;
        from[a].push(b);
    }
    let mut layers = vec![0; count];
    let mut ready: Vec<usize> = (0..count).filter(|n| waiting[*n] == 0).collect();
    while let Some(node) = ready.pop() {
        for &next in &from[node] {
            layers[next] = layers[next].max(layers[node] + 1);
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.push(next);
            }
        }
    }
    layers
}

/// Returns the order of places within each layer.
fn order(places: &[Place], links: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let count = places.iter().map(|p| p.layer + 1).max().unwrap_or(0);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (i, place) in places.iter().enumerate() {
        rows[place.layer].push(i);
    }
    let (above, below) = neighbours(places.len(), links);
    let mut position = vec![0.0; places.len()];
    let number = |row: &[usize], position: &mut Vec<f64>| {
        row.iter().enumerate().for_each(|(i, node)| position[*node] = i as f64);
    };
    rows.iter().for_each(|row| number(row, &mut position));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let near = if down { &above } else { &below };
        for i in 0..count {
            let row = &mut rows[if down { i } else { count - 1 - i }];
            let mut keyed: Vec<(f64, usize)> =
                row.iter().map(|n| (mean(&near[*n], &position, position[*n]), *n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            *row = keyed.into_iter().map(|(_, node)| node).collect();
            number(row, &mut position);
        }
    }
    rows
}

fn neighbours(count: usize, links: &[(usize, usize)]) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let (mut above, mut below) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(a, b) in links {
        below[a].push(b);
        above[b].push(a);
    }
    (above, below)
}

fn mean(nodes: &[usize], position: &[f64], otherwise: f64) -> f64 {
    if nodes.is_empty() {
        return otherwise;
    }
    nodes.iter().map(|n| position[*n]).sum::<f64>() / nodes.len() as f64
}

/// Sets the distance of each place from the top, and returns the height of the picture. An edge
/// passes a layer in its whole height.
fn set_heights(places: &mut [Place], rows: &[Vec<usize>], nodes: usize) -> f64 {
    let mut y = 0.0;
    for row in rows {
        let tallest = row.iter().map(|n| places[*n].height).fold(0.0, f64::max);
        for &node in row {
            places[node].y = y;
            if node >= nodes {
                places[node].height = tallest;
            }
        }
        y += tallest + GAP.1;
    }
    (y - GAP.1).max(0.0)
}

/// Sets the distance of each place from the left, and returns the width of the picture.
fn set_places(places: &mut [Place], rows: &[Vec<usize>], links: &[(usize, usize)]) -> f64 {
    let (above, below) = neighbours(places.len(), links);
    for row in rows {
        let mut x = 0.0;
        for &node in row {
            places[node].x = x;
            x += places[node].width + GAP.0;
        }
    }
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let near = if down { &above } else { &below };
        for i in 0..rows.len() {
            let row = &rows[if down { i } else { rows.len() - 1 - i }];
            let middles: Vec<f64> = places.iter().map(|p| p.x + p.width / 2.0).collect();
            let wanted: Vec<f64> = row
                .iter()
                .map(|n| mean(&near[*n], &middles, middles[*n]) - places[*n].width / 2.0)
                .collect();
            place_row(places, row, &wanted);
        }
    }
    let left = places.iter().map(|p| p.x).fold(f64::INFINITY, f64::min);
    places.iter_mut().for_each(|p| p.x -= left);
    places.iter().map(|p| p.x + p.width).fold(0.0, f64::max)
}

/// Places a row as near to `wanted` as it goes without overlaps: half-way between pushing to the
/// right and pushing to the left.
fn place_row(places: &mut [Place], row: &[usize], wanted: &[f64]) {
    let mut right = Vec::with_capacity(row.len());
    let mut free = f64::NEG_INFINITY;
    for (&node, &x) in row.iter().zip(wanted) {
        let x = x.max(free);
        right.push(x);
        free = x + places[node].width + GAP.0;
    }
    let mut limit = f64::INFINITY;
    for i in (0..row.len()).rev() {
        let width = places[row[i]].width;
        let left = wanted[i].min(limit - width);
        limit = left - GAP.0;
        places[row[i]].x = f64::midpoint(left, right[i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_follow_edges_and_nothing_overlaps() {
        let sizes = [(50.0, 20.0); 5];
        // A branch, a join and a loop back to the top.
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (0, 4), (3, 4)];
        let layout = layout(&sizes, &edges, 0);
        assert_eq!(layout.back, [false, false, false, false, true, false, false]);
        let y = |n: usize| layout.places[n].y;
        assert!(y(0) < y(1) && y(1) == y(2) && y(2) < y(3) && y(3) < y(4));
        assert_eq!(layout.paths[5].len(), 4, "it passes two layers");
        for (i, a) in layout.places.iter().enumerate() {
            for b in &layout.places[i + 1..] {
                let apart = a.x + a.width <= b.x || b.x + b.width <= a.x;
                assert!(a.layer != b.layer || apart, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_node_alone_is_a_picture() {
        let layout = layout(&[(10.0, 5.0)], &[(0, 0)], 0);
        assert_eq!((layout.width, layout.height), (10.0, 5.0));
        assert_eq!(layout.back, [true]);
    }
}
