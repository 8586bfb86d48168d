"""The readers of a value inside a dispatch, and their maps: what joins is asked for such pairs.

Conversions, copies and moves compute nothing: inside a dispatch they are ways to read. So a value
is used by the op that computes with it, or by a conversion at the rim whose result is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from eqsat.extract.candidates.space import Space
from eqsat.model.attr import loop_order
from eqsat.model.generic import Generic
from eqsat.model.target import DEQUANTISE, MOVES, Fusion
from eqsat.ops.contractions.roles import join_kind
from eqsat.ops.generics.access import LaneAccess, access, is_copy, seen_as, through, widens
from eqsat.ops.movement.moves import pads_with_zeros

Reader = tuple[int, int]  # (node, operand)
Readers = Mapping[int, Sequence[Reader]]  # per buffer read inside: by whom, views looked through


class Use(NamedTuple):
    """An op that reads a value as its operand, and the ops between that compute nothing."""

    node: int
    operand: int
    via: tuple[Reader, ...] = ()  # from the reader down to the value

    @property
    def readers(self) -> tuple[Reader, ...]:
        return (self.node, self.operand), *self.via

    def below(self, node: int, operand: int) -> Use:
        return Use(self.node, self.operand, (*self.via, (node, operand)))


@dataclass(frozen=True)
class Uses:
    """Asked about nodes of one e-graph, under the fusion rules of one target."""

    space: Space
    fusion: Fusion

    @cached_property
    def dequantises(self) -> tuple[bool, ...]:
        """Per node: whether it is computed wherever it is read, as the target clones such ops."""
        nodes = self.space.egraph.nodes
        if DEQUANTISE not in self.fusion.clone:
            return (False,) * len(nodes)
        return tuple(widens(n.attr) for n in nodes)

    @cached_property
    def carries(self) -> tuple[bool, ...]:
        """Per node: whether it is a way to read its operands."""
        kinds = self.space.kinds
        return tuple(
            k in ("conversion", "move") or is_copy(n.attr) or d
            for n, k, d in zip(self.space.egraph.nodes, kinds, self.dequantises, strict=True)
        )

    @cached_property
    def join_kinds(self) -> tuple[str, ...]:
        """Per node: the kind by which `join` knows what it computes."""
        both = zip(self.space.egraph.nodes, self.dequantises, strict=True)
        return tuple(DEQUANTISE if d else join_kind(n.op, n.attr) for n, d in both)

    @cached_property
    def clones(self) -> tuple[bool, ...]:
        """Per node: whether it is a move, or dequantisation, that the target clones."""
        cloned = {DEQUANTISE, *MOVES}.intersection(self.fusion.clone)
        return tuple(k in cloned for k in self.join_kinds)

    # ---- uses have numbers: groups of one e-graph make the same ones again and again -------------
    @cached_property
    def _known(self) -> list[Use]:
        return []

    @cached_property
    def _alike(self) -> list[int]:
        """Per use: a number that uses share which are made by nodes that are alike.

        Of these the last one counts, and what the rest of a use means.
        """
        return []

    @cached_property
    def _forms(self) -> dict[tuple[int, ...], int]:
        return {}

    @cached_property
    def _direct(self) -> dict[Reader, int]:
        """Per reader: the number of the use that it makes itself."""
        return {}

    @cached_property
    def _below(self) -> dict[tuple[int, Reader], int]:
        """Per use, and reader in front of it: the number of the use through that reader."""
        return {}

    def direct(self, reader: Reader) -> int:
        """The number of a use without anything between."""
        number = self._direct.get(reader)
        if number is None:
            form = self.space.alike[reader[0]], reader[1]
            self._direct[reader] = number = self._add(Use(*reader), form)
        return number

    def below(self, number: int, reader: Reader) -> int:
        """The number of a use through one more op that computes nothing."""
        lower = self._below.get((number, reader))
        if lower is None:
            form = self.meaning(number), self.space.alike[reader[0]], reader[1]
            use = self._known[number].below(*reader)
            self._below[number, reader] = lower = self._add(use, form)
        return lower

    def _add(self, use: Use, form: tuple[int, ...]) -> int:
        self._known.append(use)
        self._alike.append(self._forms.setdefault(form, len(self._forms)))
        return len(self._known) - 1

    def __getitem__(self, number: int) -> Use:
        return self._known[number]

    def numbers(self, readers: Readers, buffer: int) -> tuple[int, ...]:
        """The uses of a buffer that these readers, all of one dispatch, make of it."""
        numbers: list[int] = []
        for reader in readers.get(buffer, ()):
            q = reader[0]
            above = (
                self.numbers(readers, self.space.output_buffers[q][0]) if self.carries[q] else ()
            )
            numbers += [self.below(u, reader) for u in above] or [self.direct(reader)]
        return tuple(numbers)

    def of(self, readers: Readers, buffer: int) -> list[Use]:
        """The numbers as uses."""
        return [self._known[u] for u in self.numbers(readers, buffer)]

    # ---- the map of a use ----------------------------------------------------------------------
    @cached_property
    def _accesses(self) -> dict[Use, LaneAccess | None]:
        return {}

    def access(self, use: Use) -> LaneAccess | None:
        """How a use reads the operand of its last op, in the shape that op sees; None: unknown."""
        if use not in self._accesses:
            self._accesses[use] = self._access(use)
        return self._accesses[use]

    def _access(self, use: Use) -> LaneAccess | None:
        space, nodes = self.space, self.space.egraph.nodes
        if not use.via:
            n = nodes[use.node]
            return access(n.op, n.attr, use.operand, space.type(n.children[use.operand]).shape)
        *rest, (last, operand) = use.via
        before = Use(use.node, use.operand, tuple(rest))
        above, n = self.access(before), nodes[last]
        if above is None:
            return None
        result_shape = space.type(space.outputs[last][0]).shape
        shape = space.type(n.children[operand]).shape
        return through(
            seen_as(above, self._seen(before), result_shape), n.op, n.attr, operand, shape
        )

    def _seen(self, use: Use) -> tuple[int, ...]:
        """The shape in which a use sees what it reads."""
        node, operand = use.via[-1] if use.via else (use.node, use.operand)
        return self.space.type(self.space.egraph.nodes[node].children[operand]).shape

    @cached_property
    def _relations(self) -> dict[Use, str]:
        return {}

    def relation(self, use: Use) -> str:
        """The relation of a use's map; an op that tells no maps is as good as a permutation."""
        if use not in self._relations:
            lane_access = self.access(use)
            self._relations[use] = "permutation" if lane_access is None else lane_access.relation
        return self._relations[use]

    def meaning(self, number: int) -> int:
        """A number that uses share about which nobody can ask anything with different answers.

        Whatever is read through them is read alike, too.
        """
        form = self._alike[number]
        meaning = self._meanings.get(form)
        if meaning is None:
            use, kinds = self._known[number], self.space.kinds
            where, steps = self.access(use), tuple(self._steps(use))
            sign = self.asked(use), kinds[use.node], steps, where, self._seen(use), bool(use.via)
            meaning = self._meanings[form] = self._signs.setdefault(sign, len(self._signs))
        return meaning

    @cached_property
    def _meanings(self) -> dict[int, int]:
        """Per form of a use."""
        return {}

    @cached_property
    def _signs(self) -> dict[Hashable, int]:
        return {}

    # ---- what joins ----------------------------------------------------------------------------
    @cached_property
    def _pairs(self) -> dict[tuple[int, int], bool]:
        return {}

    def joins(self, producer: int, number: int) -> bool:
        """Whether an op may be computed inside its user's dispatch; the use is a number."""
        key = self.space.alike[producer], self.meaning(number)
        if key not in self._pairs:
            self._pairs[key] = self.may_join(producer, self._known[number])
        return self._pairs[key]

    def asked(self, use: Use) -> frozenset[str]:
        """The kinds `join` is asked about: that of the reader, and moves between with own rows.

        Where the rim computes nothing, all moves that there are: else a transpose behind a concat
        would make a conversion of it.
        """
        nodes, kinds = self.space.egraph.nodes, self.space.kinds
        is_rim = self.carries[use.node] and not self.dequantises[use.node]
        way = [(q, join_kind(nodes[q].op, nodes[q].attr, i)) for q, i in use.readers]
        rows = self.fusion.rows
        moves = {k for q, k in way if kinds[q] == "move" and (is_rim or nodes[q].op in rows)}
        return frozenset(moves if is_rim and moves else {*moves, way[0][1]})

    def may_join(self, producer: int, use: Use) -> bool:
        """Whether an op may be computed inside its user's dispatch."""
        space, fusion, kind = self.space, self.fusion, self.join_kinds[producer]
        if not all(fusion.joins(kind, k) for k in self.asked(use)):
            return False
        if not fusion.reshaped and self._is_reshaped(producer, use):
            return False
        if len(space.outputs[producer]) != 1 or space.views_of(producer):
            return False  # an op with several results is a dispatch's last member
        wanted = fusion.index_relation
        if wanted == "identity" and not self.carries[producer]:
            return self._is_one_nest(producer, use)
        if wanted == "any" or kind in fusion.cloned:
            return True
        return self.relation(use) != "any" or self.is_edge(producer, use)

    def _is_reshaped(self, producer: int, use: Use) -> bool:
        made = self.space.type(self.space.outputs[producer][0]).shape
        return [s for s in made if s > 1] != [s for s in self._seen(use) if s > 1]

    def is_edge(self, producer: int, use: Use) -> bool:
        """Whether an op pads for a contraction whose windows may reach over the edge."""
        attr = self.space.egraph.nodes[producer].attr
        pads = self.fusion.pads and pads_with_zeros(attr)
        return pads and not use.via and self.space.kinds[use.node] == "contraction"

    def _is_one_nest(self, producer: int, use: Use) -> bool:
        """Whether a generic's user wants its elements in the order in which they are computed."""
        maker, lane_access = self.space.egraph.nodes[producer], self.access(use)
        if not isinstance(maker.attr, Generic) or lane_access is None:
            return False
        shown = seen_as(lane_access, self._seen(use), maker.attr.result_shape)
        return shown.is_in_step(self._steps(use), maker.attr.executed[: maker.attr.rank])

    def _steps(self, use: Use) -> Sequence[int]:
        """The loops of a use, or the dims that a conversion writes, as they are executed."""
        lane_access = self.access(use)
        order = loop_order(self.space.egraph.nodes[use.node].attr)
        return order or range(len(lane_access.loops) if lane_access else 0)

    def may_read(self, use: Use) -> bool:
        """Whether memory may be read so: under `identity`, nothing turns what is read inside."""
        if not use.via or self.fusion.index_relation != "identity":
            return True
        lane_access = self.access(use)
        return lane_access is not None and lane_access.is_in_step(
            self._steps(use), range(len(lane_access.indices))
        )

    # ---- what is tiled along -------------------------------------------------------------------
    def links(self, readers: Readers, root: int) -> Iterator[tuple[int, Use]]:
        """A root and its users, and those of the elementwise ops among these: all it is tiled with.

        (what is read, use) pairs.
        """
        waiting, done = [root], {root}
        while waiting:
            maker = waiting.pop()
            for use in self.of(readers, self.space.output_buffers[maker][0]):
                yield maker, use
                if self.space.kinds[use.node] == "elementwise" and use.node not in done:
                    done.add(use.node)
                    waiting.append(use.node)

    def is_along(self, maker: int, use: Use) -> bool:
        """Whether a user can be tiled with what it reads."""
        key = maker, use
        along = self._along.get(key)
        if along is None:
            along = self._along[key] = self._is_along(maker, use)
        return along

    @cached_property
    def _along(self) -> dict[tuple[int, Use], bool]:
        return {}

    def _is_along(self, maker: int, use: Use) -> bool:
        along = ("elementwise", "conversion", "move")
        if self.fusion.output_reductions:  # blocks of the result are reduced as they are made
            along = (*along, "reduction")
        if self.space.kinds[use.node] not in along:
            return False
        lane_access = self.access(use)
        shape = self.space.type(self.space.outputs[maker][0]).shape
        return (
            lane_access is not None
            and seen_as(lane_access, self._seen(use), shape).relation != "any"
        )
