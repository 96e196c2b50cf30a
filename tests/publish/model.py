"""A model of how datasets are written, appended to and compacted: all its states are visited.

Writers do their operations in every order of their steps, and one that dies at a step begins its
operation again. They share a directory with a lock, or an object store. There a request may arrive
at any time after it was sent: at any step, a writer may have lost the lease, not know it, and go
on. One assumption is made: requests of an *overwrite* arrive while it holds the lease. An append
and a compaction need none.

What is promised:

- All files of the manifest are there with their content, and no row is there twice. An append keeps
  what the manifest names, so a reader that has opened a dataset may go on reading until an
  overwrite or a compaction replaces it.
- Only an overwrite takes rows away, and only it leaves a time without a manifest.
- No append or compaction that is published says that it failed.
- The same commands, run again to their end after all, leave each of their rows there exactly once,
  and in a directory no other file.

How an append and a compaction do that: each try has names for its files that no other try has, so
the manifest that is published names no file of another try. A file is removed only when it cannot
be published any more: the manifest is not the one which its try was to replace, and does not name
it.
"""

from __future__ import annotations

from typing import NamedTuple

# Appends are named by the letters of their input files; overwrites end in an exclamation mark.
COMPACT = "compact"


class Generation(NamedTuple):
    """What one job has published: a row of each input, and files by name and content."""

    job: str
    rows: frozenset[str]
    files: frozenset[tuple[str, str]]


class Manifest(NamedTuple):
    """The manifest; no version ever comes back."""

    version: int
    dataset: int
    generations: tuple[Generation, ...]

    @property
    def rows(self):
        """Rows of all generations."""
        return [row for generation in self.generations for row in sorted(generation.rows)]

    @property
    def jobs(self):
        """Jobs of all generations."""
        return [generation.job for generation in self.generations]

    @property
    def files(self):
        """Names and contents of all files."""
        return frozenset().union(*(generation.files for generation in self.generations))


class Writer(NamedTuple):
    """A process, and what it knows: its job, the manifest that it read, and what to remove."""

    operations: tuple[str, ...]
    step: str = "begin"
    job: str = ""
    seen: Manifest | None = None
    dead: tuple[tuple[str, int, str, str], ...] = ()

    @property
    def is_overwrite(self):
        """Whether it removes the manifest first, and gives files plain names."""
        return self.operations[0].endswith("!")

    @property
    def is_compaction(self):
        """Whether it replaces all generations by one."""
        return self.operations[0] == COMPACT


class State(NamedTuple):
    """All that is stored, and the writers.

    Attributes:
        files: Names and contents; a content is a job and the number of the file.
        temporary: Contents in the temporary directories of jobs.
        notes: Job, version of the manifest to replace, name and content of a file.
    """

    writers: tuple[Writer, ...]
    manifest: Manifest | None
    files: frozenset[tuple[str, str]]
    temporary: frozenset[str] = frozenset()
    notes: frozenset[tuple[str, int, str, str]] = frozenset()
    lease: int | None = None
    version: int = 0
    deaths: int = 0

    def to(self, me, step, **changes):
        """Return the state after a step of a writer, who remembers some of the changes."""
        known = {name: changes.pop(name) for name in ("job", "seen", "dead") if name in changes}
        writer = self.writers[me]._replace(step=step, **known)
        return self._replace(
            writers=(*self.writers[:me], writer, *self.writers[me + 1 :]), **changes
        )

    def again(self, me, done=0, **changes):
        """Return the state after which a writer begins an operation, or the next if it is done."""
        writer = Writer(self.writers[me].operations[done:])
        return self._replace(
            writers=(*self.writers[:me], writer, *self.writers[me + 1 :]), **changes
        )

    def without_lease(self, me):
        """Return the holder of the lease after a writer gave it up."""
        return None if self.lease == me else self.lease


class Violation(Exception):
    """A promise is broken."""


class Model:
    """The steps of all operations.

    Attributes:
        is_store: An object store, else a directory.
        fault: Name of a fault of the protocol to make; empty: none.
    """

    def __init__(self, *, is_store, fault=""):
        self.is_store, self.fault = is_store, fault

    def search(self, *operations, deaths=1):
        """Visit all states of writers of these operations; return how many, or raise."""
        files = frozenset({("plain-0", "D0"), ("plain-1", "D1")})
        manifest = Manifest(0, 0, (Generation("D", frozenset("D"), files),))
        state = State(tuple(map(Writer, operations)), manifest, files, deaths=deaths)
        came_from, stack = {state: None}, [state]
        while stack:
            path = [stack.pop()]
            try:
                following = self._following(path[0])
                if not following:
                    self._check_end(path[0], sum(operations, ()))
                for after in following:
                    if after not in came_from:
                        _check(path[0], after)
                        came_from[after] = path[0]
                        stack.append(after)
            except Violation as violation:
                while came_from[path[0]] is not None:
                    path.insert(0, came_from[path[0]])
                steps = [" ".join(one.step for one in each.writers) for each in path]
                raise Violation(f"{violation}, after {', '.join(steps)}") from None
        return len(came_from)

    def _following(self, state):
        """Return the states after one step of one writer, or after its death."""
        found = []
        for me, writer in enumerate(state.writers):
            if not writer.operations:
                continue
            after = getattr(self, f"_{writer.step.rstrip('01')}")(state, me, writer)
            found += [] if after is None else [after]  # It waits for the lock.
            if after and state.deaths and writer.step != "begin":
                lease = state.lease if self.is_store else state.without_lease(me)
                found.append(state.again(me, deaths=state.deaths - 1, lease=lease))
        return found

    def _begin(self, state, me, writer):
        operation, seen = writer.operations[0], state.manifest
        if writer.is_overwrite:
            job = operation
        elif seen is None:
            return self._refuse(state, me, writer)
        elif writer.is_compaction:
            job = f"{COMPACT}@{seen.version}-" if len(seen.generations) > 1 else ""
        else:
            job = "".join(sorted(set(operation).difference(seen.rows)))
        if not job:
            return state.again(me, 1)
        temporary = state.temporary | {f"{job}0", f"{job}1"}
        return state.to(me, "take", job=job, seen=seen, temporary=temporary)

    def _take(self, state, me, writer):
        if state.lease not in (None, me) and not self.is_store and self.fault != "no lock":
            return None
        early = self.fault == "files are removed before the commit"
        return state.to(me, "clean" if early else "read", lease=me)

    def _read(self, state, me, writer):
        now, seen = state.manifest, writer.seen
        if now and writer.job in now.jobs and self.fault != "no look for its own id":
            return state.to(me, "clean")
        if not writer.is_overwrite:
            if now is None or now.dataset != seen.dataset:
                return self._refuse(state, me, writer)
            is_other = writer.is_compaction and now != seen
            if is_other or (set(writer.job) & set(now.rows) and self.fault != "no look at inputs"):
                return self._refuse(state, me, writer)
        return state.to(me, "note", seen=now)

    def _note(self, state, me, writer):
        files = set(self._new_files(writer))
        if writer.seen and (writer.is_overwrite or writer.is_compaction):
            files |= writer.seen.files
        noted = {(writer.job, writer.seen.version if writer.seen else -1, *file) for file in files}
        notes = state.notes if self.fault == "no note" else state.notes | noted
        removes = writer.is_overwrite or self.fault == "compaction as an overwrite"
        return state.to(me, "remove" if removes else "name0", notes=notes)

    def _remove(self, state, me, writer):
        if not self._may_write(state, me, writer):
            return self._refuse(state, me, writer)
        return state.to(me, "name0", manifest=None, version=state.version + 1)

    def _name(self, state, me, writer):
        """Copy or rename a file to its final name."""
        if not self._may_write(state, me, writer):
            return self._refuse(state, me, writer)
        number, files, temporary = int(writer.step[-1]), state.files, state.temporary
        new = self._new_files(writer)[number]
        # In a directory, an earlier try may have taken it away.
        noted = {note[2:] for note in state.notes if (note[0], note[3]) == (writer.job, new[1])}
        if new[1] in temporary:
            files = frozenset(file for file in files if file[0] != new[0]) | {new}
            temporary -= set() if self.is_store else {new[1]}
        elif not self.is_store and noted & files:
            files = files - noted | {new}
        elif new not in files:  # The same command has ended elsewhere, or it was cleared away.
            return state.again(me)
        step = ("name1", "commit")[number]
        return state.to(me, step, files=files, temporary=temporary)

    def _commit(self, state, me, writer):
        seen, version, job = writer.seen, state.version + 1, writer.job
        if not self._may_write(state, me, writer):
            return self._refuse(state, me, writer)
        is_checked = self.is_store and not writer.is_overwrite and self.fault != "no If-Match"
        if is_checked and state.manifest != seen:
            return state.to(me, "read")
        dataset, kept, rows = version, (), frozenset(job.rstrip("!"))
        if writer.is_compaction:
            rows = frozenset(seen.rows[1 if self.fault == "inputs are forgotten" else 0 :])
        elif not writer.is_overwrite:
            dataset, kept = seen.dataset, seen.generations
        made = Generation(job, rows, frozenset(self._new_files(writer)))
        # All look for their own id then, as those must who get no answer.
        manifest = Manifest(version, dataset, (*kept, made))
        return state.to(me, "read", manifest=manifest, version=version)

    def _clean(self, state, me, writer):
        """Look for files that can be published no more."""
        now, early = state.manifest, self.fault == "files are removed before the commit"
        old = [note for note in state.notes if now and (early or note[1] != now.version)]
        dead = tuple(sorted(note for note in old if note[2:] not in now.files))
        return state.to(me, "sweep", dead=dead)

    def _sweep(self, state, me, writer):
        """Remove one such file; in a directory, give it back to the job that made it."""
        if not writer.dead:
            is_out = state.manifest and writer.job in state.manifest.jobs
            early = self.fault == "files are removed before the commit" and not is_out
            return state.to(me, "read" if early else "end")
        job, _, *file = note = writer.dead[0]
        files, notes, temporary = state.files, state.notes, state.temporary
        # Others may have the plain names by now.
        if state.lease == me or not file[0].startswith("plain"):
            if tuple(file) in files and not self.is_store and file[1].startswith(job):
                temporary |= {file[1]}
            files, notes = files - {tuple(file)}, notes - {note}
        changes = {"files": files, "notes": notes, "temporary": temporary}
        return state.to(me, "sweep", dead=writer.dead[1:], **changes)

    def _end(self, state, me, writer):
        return state.again(
            me,
            1,
            temporary=frozenset(one for one in state.temporary if one[:-1] != writer.job),
            notes=frozenset(note for note in state.notes if note[0] != writer.job),
            lease=state.without_lease(me),
        )

    def _refuse(self, state, me, writer):
        if state.manifest and writer.job in state.manifest.jobs and not writer.is_overwrite:
            raise Violation("what has published says that it failed")
        return state.again(me, 1, lease=state.without_lease(me))

    def _may_write(self, state, me, writer):
        is_sure = not writer.is_overwrite or self.fault == "an overwrite without its assumption"
        return is_sure or state.lease == me

    def _new_files(self, writer):
        """Return names and contents of the files of a try."""
        begin = "plain"
        if not writer.is_overwrite and writer.seen:
            own = "" if self.fault == "names of a number" else f"-{writer.job}{writer.seen.version}"
            begin = f"g{len(writer.seen.generations) + 1}{own}"
        return [(f"{begin}-{number}", f"{writer.job}{number}") for number in range(2)]

    def _check_end(self, state, operations):
        """Check that the same commands, run again, leave all their rows there once."""
        if any(writer.operations for writer in state.writers):
            raise Violation("all wait for each other")
        overwrites = [one for one in operations if one.endswith("!") and state.manifest is None]
        appends = [one for one in operations if one.isupper() and one.isalpha()]
        # The last one clears up what all others have left.
        state = state._replace(writers=(Writer((*overwrites[:1], *appends, "Z")),), deaths=0)
        while following := self._following(state):
            _check(state, following[0])
            (state,) = following
        if not state.manifest or not set("".join(appends)).issubset(state.manifest.rows):
            raise Violation("rows are lost")
        if not self.is_store and state.files != state.manifest.files:
            raise Violation("files were left")


def _check(before, after):
    """Check what must hold after each step."""
    old, new = before.manifest, after.manifest
    is_changed = new is not old or after.files is not before.files
    if new and is_changed and not new.files <= after.files:
        raise Violation("files of the manifest are gone or are others")
    if new is None or new == old:
        return
    if len(set(new.rows)) < len(new.rows):
        raise Violation("rows are there twice")
    kept, last = new.generations[:-1], new.generations[-1].job
    if last.endswith("!"):
        is_right = old is None
    elif last.startswith(COMPACT):
        is_right = old and set(new.rows) == set(old.rows)
    else:
        is_right = old and kept == old.generations
    if not is_right:
        raise Violation("a manifest was replaced unseen")
