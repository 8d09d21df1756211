#!/usr/bin/env python3
"""Pins the outputs of a checkout, and compares two sets of pins byte by byte.

    python pins.py take REPO OUT [-j 2] [--only REGEX]   outputs of REPO (its own .venv) into OUT
    python pins.py measure REPO        run the microbenchmarks once; their results are fixtures
    python pins.py diff OUT1 OUT2      what differs; exit code 1 where something does

A store is one job, in a process of its own; commands run in it through `collscope.cli.main`, in a
folder where `samples`, `recordings` and `corpus` are links, so that no path of the machine appears.
Each output is a file: exit code, standard output and errors, and what was written to `-o`.
"""
from __future__ import annotations
import argparse, contextlib, gzip, hashlib, io, itertools, json, multiprocessing, os, pickle, re, shutil, sys, tempfile, time, traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get('COLLSCOPE_SHARED', HERE.parents[2] / 'shared'))
READABLE = ('text', 'md', 'csv', 'json', 'html')

# ------------------------------------------------------------------ which outputs
def jobs(repo):
    """(name, [steps]); a step is (name, arguments)."""
    rec = 'recordings'
    A, C, J = f'{rec}/h200x4-nccl2.28.9-torch2.11', f'{rec}/h200x2-causes', f'{rec}/h200x4-jobs'
    out = []
    def reports(tag='', extra=(), formats=READABLE, plot=True):
        for f in formats: yield f'report{tag}.{f}', ['report', '--format', f, *extra]
        if plot: yield f'report{tag}.svg', ['report', '--plot', 'plot.svg', *extra]
    # 1. every sample by itself
    samples = sorted(p for p in (repo / 'samples').rglob('*') if p.is_file() and p.suffix not in ('.md',) or p.name.endswith(('allreduce-wrapper.md', 'msccl-allgather.md', 'p2p-microbenchmarks.md')))
    for p in samples:
        rel = str(p.relative_to(repo))
        steps = [('ingest', ['ingest', 'auto', rel]), *reports(formats=('text', 'json', 'csv'), plot=False), ('runs', ['runs'])]
        out.append(('sample-' + rel.removeprefix('samples/').replace('/', '-'), steps))
    # 2. folders of samples and recordings, every format
    folders = {
        'nccl-ddp': ['samples/nccl/ddp'], 'nccl-mixed': ['samples/nccl/mixed'], 'coll-only': ['samples/nccl/mixed-coll-only.log'],
        'rccl': ['samples/rccl/guide-coll-klke.log', 'samples/profiles/guide-top.txt'], 'frontier': ['samples/tables/frontier-allreduce.txt', 'samples/profiles/frontier-gptj.txt', 'samples/profiles/frontier-bigbird.txt'],
        'traces-default': ['samples/traces/default'], 'traces-ringll': ['samples/traces/ringll'],
        'recorders': ['samples/recorders'], 'profiles': ['samples/profiles'], 'tables': ['samples/tables'], 'replay': ['samples/replay'],
        'rec-ddp': [f'{A}/ddp'], 'rec-mixed': [f'{A}/mixed'], 'rec-blocking': [f'{A}/blocking/default'], 'rec-blocking-ringll': [f'{A}/blocking/ringll'], 'rec-nccl-tests': [f'{A}/nccl-tests'], 'rec-microbench': [f'{A}/microbench'],
        'rec-causes-base': [f'{C}/base/logs', f'{C}/base/traces'], 'rec-loader': [f'{C}/loader'], 'rec-scalars': [f'{C}/scalars'], 'rec-slowgpu': [f'{C}/slowgpu'], 'rec-ctas1': [f'{C}/ctas1'],
        'rec-infer': [f'{C}/infer-nccl'], 'rec-infer-late': [f'{C}/infer-nccl-late'], 'rec-hang-size': [f'{C}/hang-size'], 'rec-hang-hostsleep': [f'{C}/hang-hostsleep'], 'rec-hang-exit': [f'{C}/hang-exit'],
        'rec-jobs-fsdp': [f'{J}/logs/fsdp'], 'rec-ddp-ch2': [f'{rec}/h200x4-ddp-ch2/ch2'],
        'rec-x2-tests': [f'{rec}/h200x2-nccl2.28.9-torch2.11/nccl-tests'],
    }
    for name, paths in folders.items():
        steps = [('ingest', ['ingest', 'auto', *paths]), *reports(),
                 *reports('.h200', ['--system', 'h200'], ('text', 'json', 'html'), False), *reports('.frontier', ['--system', 'frontier'], ('text',), False),
                 *reports('.fit', ['--system', 'fit'], ('text', 'csv'), False), ('report.top3', ['report', '--top', '3', '--format', 'md']), ('report.wide', ['report', '--wide', '--top', '0']),
                 ('predict.text', ['predict', '--system', 'h200']), ('predict.explain', ['predict', '--system', 'h200', '--explain', '--step-ms', '12.5']), ('predict.json', ['predict', '--system', 'h200', '--format', 'json']),
                 ('replay.plan', ['replay', '--dry-run', '-n', '2', '--backend', 'host', '--scale-ranks', '2']), ('runs.csv', ['runs', '--format', 'csv'])]
        for view in ('classes', 'communicators', 'members', 'share', 'transports', 'findings', 'measurements', 'diagnostics', 'ranks', 'waits', 'class_times', 'clocks'):
            steps.append((f'sql.{view}', ['sql', f'SELECT * FROM {view} LIMIT 200', '--format', 'csv']))
        out.append(('store-' + name, steps))
    # 3. comparisons of measurements
    steps = [('in1', ['ingest', 'csv', 'samples/replay/h200x2-rounds.csv', '--label', 'base']), ('in2', ['ingest', 'csv', 'samples/replay/h200x4-sweep.csv', '--label', 'sweep']), ('in3', ['ingest', 'csv', 'samples/replay/h200x4-mixed.csv', '--label', 'mixed']),
             ('in4', ['ingest', 'table', f'{A}/nccl-tests/allreduce.1.txt', '--label', 't1']), ('in5', ['ingest', 'table', f'{A}/nccl-tests/allreduce.2.txt', '--label', 't2']), ('in6', ['ingest', 'table', f'{A}/nccl-tests/allreduce.3.txt', '--label', 't3']),
             ('in7', ['ingest', 'auto', 'samples/nccl/ddp', '--run', 'job'])]
    for a, b in (('base', 'sweep'), ('sweep', 'mixed'), ('t1', 't2'), ('t1', f'{A}/nccl-tests/replay.1.csv'), (f'{A}/nccl-tests/replay.1.csv', f'{A}/nccl-tests/replay.2.csv'), ('base', 'nothing'), ('sweep', 'sweep')):
        n = f"{a.split('/')[-1]}-{b.split('/')[-1]}"
        for f in READABLE: steps.append((f'compare.{n}.{f}', ['compare', a, b, '--format', f]))
        for f in ('text', 'md', 'json', 'junit', 'github', 'html'): steps.append((f'check.{n}.{f}', ['check', a, b, '--format', f]))
        steps += [(f'compare.{n}.system', ['compare', a, b, '--system', 'h200']), (f'check.{n}.system', ['check', a, b, '--system', 'pcie-gen3']), (f'compare.{n}.weights', ['compare', a, b, '--weights', 'job']), (f'check.{n}.weights', ['check', a, b, '--weights', 'job', '--threshold', '1', '--resolution', '50']), (f'compare.{n}.plot', ['compare', a, b, '--plot', 'plot.svg', '--system', 'h200'])]
    steps += [(f'compare3.{f}', ['compare', 't1', 't2', 't3', '--format', f]) for f in READABLE]
    steps += [(f'control.{f}', ['check', 't1', 't2', '--control', 't3', '--format', f]) for f in ('text', 'json', 'junit', 'github', 'html')]
    steps += [('fit', ['roofline', '--system', 'h200', '--fit', 'sweep']), ('fit.json', ['roofline', '--system', 'h200', '--fit', 'sweep', '--format', 'json'])]
    for f in ('text', 'md', 'csv', 'json', 'html'): steps.append((f'fusion.{f}', ['whatif', 'fusion', '--layers', 'samples/layers/resnet50.csv', '--label', 'sweep', '--thresholds', '1M..64M*4', '--format', f]))
    steps += [('fusion.plot', ['whatif', 'fusion', '--layers', 'samples/layers/resnet50.csv', '--label', 'sweep', '--thresholds', '1M..64M*4', '--plot', 'plot.svg']), ('fusion.post', ['whatif', 'fusion', '--layers', 'samples/layers/resnet50.csv', '--label', 'sweep', '--policy', 'post_gt', '--thresholds', '1K..64M*2']), ('fusion.run', ['whatif', 'fusion', '--run', 'job', '--label', 'sweep'])]
    steps += [('report.job', ['report', '--run', 'job', '--label', 'sweep', '--system', 'h200', '--format', f, ]) for f in ()]
    out.append(('compare-measurements', steps))
    # 4. labels beside a job
    for name, job, meas in (('ddp', 'samples/nccl/ddp', 'samples/replay/h200x4-sweep.csv'), ('mixed', 'samples/nccl/mixed', 'samples/replay/h200x4-mixed.csv'), ('traced', f'{A}/ddp', 'samples/replay/h200x4-sweep.csv')):
        steps = [('in1', ['ingest', 'auto', job]), ('in2', ['ingest', 'csv', meas, '--label', 'm']), *reports(), *reports('.h200', ['--system', 'h200'])]
        steps += [(f'predict.{f}', ['predict', '--with', 'm', '--format', f, '--step-ms', '80']) for f in READABLE] + [('predict.explain', ['predict', '--with', 'm', '--explain'])]
        steps += [('tune.dry', ['tune', '--dry-run', '--backend', 'host', '-n', '2', '--scale-ranks', '2', '--limit', '3']), ('export', ['export', 'perfetto', '-o', 'trace.json'])]
        out.append(('labels-' + name, steps))
    # 5. traced runs against each other
    for name, (a, b) in {'blocking': ('samples/traces/default', 'samples/traces/ringll'), 'ch2': (f'{J}/plain/default', f'{J}/plain/ch2'), 'll': (f'{J}/scheduled/default', f'{J}/scheduled/ll'), 'ddp-ch2': (f'{rec}/h200x4-ddp-ch2/default', f'{rec}/h200x4-ddp-ch2/ch2'),
                         'loader': (f'{C}/base/traces', f'{C}/loader/traces'), 'ctas1': (f'{C}/base/traces', f'{C}/ctas1/traces'), 'slowgpu': (f'{C}/base/traces', f'{C}/slowgpu/traces'), 'scalars': (f'{C}/base/traces', f'{C}/scalars/traces')}.items():
        steps = [('in1', ['ingest', 'trace', a, '--run', 'before']), ('in2', ['ingest', 'trace', b, '--run', 'after'])]
        for f in READABLE:
            steps += [(f'compare.{f}', ['compare', 'before', 'after', '--format', f]), (f'explain.{f}', ['compare', '--explain', 'before', 'after', '--format', f]), (f'predict.{f}', ['predict', '--run', 'before', '--with', 'after', '--explain', '--format', f])]
        for f in ('text', 'json', 'junit', 'github', 'html', 'md'): steps.append((f'check.{f}', ['check', 'before', 'after', '--format', f]))
        steps += [('report.before', ['report', '--run', 'before']), ('report.html', ['report', '--run', 'after', '--format', 'html', '--system', 'h200']), ('explain.back', ['compare', '--explain', 'after', 'before']), ('predict.back', ['predict', '--run', 'after', '--with', 'before', '--step-ms', '20']), ('perfetto', ['export', 'perfetto', '--run', 'before', '-o', 'trace.json']), ('perfetto.with', ['export', 'perfetto', '--run', 'before', '--with', 'after', '-o', 'trace.json']), ('check.system', ['check', 'before', 'after', '--system', 'h200', '--control', 'before'])]
        out.append(('traced-' + name, steps))
    # 6. no store: roofline, msccl, help, errors
    systems = sorted(p.stem for p in (repo / 'collscope/roofline/systems').glob('*.toml'))
    steps = [(f'list.{f}', ['roofline', '--list', '--format', f]) for f in READABLE] + [(f'{s}.text', ['roofline', s]) for s in systems] + [(f'{s}.{f}', ['roofline', s, '--format', f]) for s in ('h200', 'mi300x', 'frontier', 'dgx1-v100') for f in READABLE]
    steps += [('multi', ['roofline', 'h200+ib-ndr', '--nodes', '4']), ('op', ['roofline', 'mi300x', '--op', 'AllReduce', '-n', '4']), ('unknown', ['roofline', 'nothing'])]
    out.append(('roofline', steps))
    steps = [(f'msccl.{f}', ['msccl', 'msccl', '--format', f, '--system', s]) for f in READABLE for s in ('h100', 'mi300x')] + [('in', ['ingest', 'auto', 'samples/nccl/mixed'])] + [(f'msccl.run.{f}', ['msccl', 'msccl', '--run', 'main', '--system', 'h100', '--format', f]) for f in READABLE] + [('none', ['msccl', 'samples/nccl'])]
    out.append(('msccl', steps))
    out.append(('help', [('help', '@help')]))
    E = [['report'], ['report', '--run', 'x'], ['report', '--format', 'pdf'], ['report', '--plot', 'a.gif'], ['report', '--system', 'nothing'], ['compare', 'a'], ['compare', 'a', 'b'], ['check', 'a'], ['check', 'a.csv', 'b.csv'], ['check', 'a', 'b', '--threshold', 'nan'], ['predict'], ['predict', '--with', 'x', '--system', 'h200'], ['predict', '--with', 'x', '--step-ms', '-1'], ['ingest', 'auto', 'nowhere'], ['ingest', 'log', 'samples/README.md'], ['ingest', 'csv', 'samples/README.md'], ['sql', 'SELECT'], ['sql', 'DROP TABLE x'], ['sql'], ['runs', 'rm'], ['runs', 'rm', 'x'], ['whatif', 'fusion'], ['msccl', 'nowhere'], ['export', 'perfetto', '-o', 'x.txt'], ['tune', '--dry-run'], ['replay'], ['replay', '--plan', 'nowhere'], ['nonsense'], ['--version'], [], ['bench'], ['bench', 'p2p', '--pairs', 'x']]
    steps = [(f'empty.{i:02}', e) for i, e in enumerate(E)] + [('in', ['ingest', 'auto', 'samples/nccl/ddp'])] + [(f'full.{i:02}', e) for i, e in enumerate(E) if e != ['replay']]
    out.append(('errors', steps))
    out.append(('sql-views', [('in', ['ingest', 'auto', f'{A}/ddp']), ('sql', ['sql']), *[(f'sql.{f}', ['sql', 'SELECT * FROM classes', '--format', f]) for f in READABLE]]))
    corpus = sorted((SHARED / 'corpus').glob('attack-*/*'))
    for p in corpus[:0]: pass
    # 7. microbenchmarks with measured fixtures
    if (HERE / 'measured').is_dir():
        for kind, commands in MEASURED.items():
            for f in ('text', 'md', 'csv', 'json', 'html'):
                out.append((f'bench-{kind}-{f}', [('out', [*commands[0], '--format', f]), ('again', [*commands[0]])] if f != 'text' else [('out', commands[0]), *([('plot', [*commands[0], '--plot', 'plot.svg'])] if kind in ('p2p', 'interference') else [])]))
    return out

MEASURED = {   # command, and the function whose result is a fixture
    'p2p': (['bench', 'p2p', '-n', '3', '--backend', 'host', '--sizes', '4K,1M', '--budget', '0.01'], 'collscope.bench.p2p', 'run_p2p'),
    'memcpy': (['bench', 'memcpy', '--backend', 'host', '--only', 'within', '--sizes', '4K,1M', '--budget', '0.01'], 'collscope.bench.memcpy', 'measure_copies'),
    'interference': (['bench', 'interference', '-n', '2', '--backend', 'host', '--budget', '0.01'], 'collscope.bench.interference', 'measure_interference'),
    'wrapper': (['bench', 'allreduce-wrapper', '-n', '2', '--backend', 'host'], 'collscope.whatif.wrapper', 'run_wrapper'),
    'replay': (['replay', '--backend', 'host', '-n', '2', '--sweep', 'allreduce:4K..64K*4', '--budget', '0.01', '--csv', 'out.csv'], 'collscope.replay.measure', 'measure_parts'),
}

# ------------------------------------------------------------------ running
def use(repo):
    """`collscope` of a checkout, with the compiled parts of its environment."""
    import importlib.util
    sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]
    site = next(p for p in (Path(x) / 'collscope' for x in sys.path) if list(p.glob('_logscan*.so')))
    init = repo / 'collscope/__init__.py'
    spec = importlib.util.spec_from_file_location('collscope', init, submodule_search_locations=[str(repo / 'collscope'), str(site)])
    module = importlib.util.module_from_spec(spec)
    sys.modules['collscope'] = module
    spec.loader.exec_module(module)

def run(arguments):
    from collscope import cli
    import typer.main, functools
    if not hasattr(typer.main.get_command, 'cache_info'): typer.main.get_command = functools.cache(typer.main.get_command)
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ['collscope', *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: cli.main()
        except SystemExit as end: code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException: err.write(traceback.format_exc()); code = 99
    return code, out.getvalue(), err.getvalue()

def normal(text, folder):
    text = text.replace(str(folder), '<folder>').replace(os.path.realpath(folder), '<folder>')
    text = re.sub(r'/tmp/[\w./-]+', '<tmp>', text)
    text = re.sub(r'\d+(\.\d+)? (MB/s|lines/s)', '<rate>', text)
    return text

def help_pages():
    """Arguments of every command and group, from the command line itself."""
    import typer.main
    from collscope import cli
    def walk(command, path):
        yield [*path, '--help']
        names = getattr(command, 'commands', None)
        if names:
            for name in sorted(names):
                c = names[name]
                c = getattr(c, 'loaded', c)
                yield from walk(c() if callable(c) and not hasattr(c, 'params') else c, [*path, name])
    top = typer.main.get_command(cli.app)
    for name in [None, *sorted(top.commands)]:
        yield [*([name] if name else []), '--help']
    for group, subs in (('ingest', 'auto log profile trace table csv metric'), ('bench', 'p2p memcpy interference allreduce-wrapper'), ('whatif', 'fusion'), ('export', 'perfetto')):
        for s in subs.split(): yield [group, s, '--help']

def work(args):
    name, steps, repo, out, measured = args
    folder = Path(tempfile.mkdtemp(prefix='pins-'))
    os.chdir(folder)
    (folder / 'samples').symlink_to(repo / 'samples'); (folder / 'recordings').symlink_to(SHARED / 'recordings'); (folder / 'corpus').symlink_to(SHARED / 'corpus')
    (folder / 'msccl').mkdir()
    for p in (HERE / 'msccl').glob('*.xml'): shutil.copy(p, folder / 'msccl' / p.name)
    os.environ.pop('COLLSCOPE_DB', None); os.environ['COLUMNS'] = '120'
    n = 0
    began = time.time()
    try:
        if name.startswith('bench-'):
            kind = name.split('-')[1]
            import importlib
            _, module, function = MEASURED[kind]
            m = importlib.import_module(module)
            path = HERE / 'measured' / f'{kind}.pickle'
            if not path.exists(): return name, 0, 0.0
            setattr(m, function, lambda *a, **k: pickle.loads(path.read_bytes()))
        if steps and steps[0][1] == '@help': steps = [('-'.join(a), a) for a in help_pages()]
        for i, (step, arguments) in enumerate(steps):
            before = {p: p.stat().st_mtime_ns for p in folder.rglob('*') if p.is_file() and not p.is_symlink()}
            code, o, e = run(arguments)
            text = f"$ collscope {' '.join(arguments)}\n[{code}]\n--- out\n{normal(o, folder)}\n--- err\n{normal(e, folder)}\n"
            for p in sorted(folder.rglob('*')):
                if p.is_file() and not p.is_symlink() and not p.name.startswith('collscope.db') and before.get(p) != p.stat().st_mtime_ns:
                    b = p.read_bytes()
                    text += f'--- {p.relative_to(folder)} {len(b)} {hashlib.sha256(b).hexdigest()}\n'
            blob = text.encode()
            target = out / name / f'{i:03}-{re.sub(r"[^A-Za-z0-9._-]", "_", step)[:80]}'
            target.parent.mkdir(parents=True, exist_ok=True)
            if len(blob) > 400_000: Path(f'{target}.gz').write_bytes(gzip.compress(blob, 1, mtime=0))
            else: target.write_bytes(blob)
            n += 1
    finally:
        os.chdir('/'); shutil.rmtree(folder, ignore_errors=True)
    return name, n, time.time() - began

def take(repo, out, processes, only):
    use(repo)
    import collscope.cli, numpy, msgspec, matplotlib, collscope.store.connection  # noqa: once, before the forks
    matplotlib.rcParams['svg.hashsalt'] = 'pins'  # else plots without a salt of their own differ each time
    shutil.rmtree(out, ignore_errors=True); out.mkdir(parents=True)
    todo = [j for j in jobs(repo) if not only or re.search(only, j[0])]
    heavy = ('traced-', 'store-rec', 'compare-m', 'labels')
    todo.sort(key=lambda j: (not j[0].startswith(heavy), j[0]))
    began, total = time.time(), 0
    with multiprocessing.get_context('fork').Pool(processes, maxtasksperchild=1) as pool:
        for name, n, s in pool.imap_unordered(work, [(n, s, repo, out, None) for n, s in todo], chunksize=1):
            total += n
            if s > 20: print(f'  {name}: {n} outputs, {s:.0f} s', flush=True)
    print(f'{total} outputs of {len(todo)} jobs in {time.time() - began:.0f} s: {out}')

def measure(repo):
    use(repo)
    import importlib
    (HERE / 'measured').mkdir(exist_ok=True)
    for kind, (command, module, function) in MEASURED.items():
        m = importlib.import_module(module); real = getattr(m, function)
        def keep(*a, _real=real, _kind=kind, **k):
            found = _real(*a, **k)
            (HERE / 'measured' / f'{_kind}.pickle').write_bytes(pickle.dumps(found))
            return found
        setattr(m, function, keep)
        folder = tempfile.mkdtemp(); os.chdir(folder)
        code, o, e = run(command)
        print(kind, code, o[:200].replace('\n', ' | '), e[:300])
        setattr(m, function, real); os.chdir('/')

def read(p): return gzip.decompress(p.read_bytes()) if p.suffix == '.gz' else p.read_bytes()

def diff(a, b):
    import difflib
    fa = {p.relative_to(a).with_suffix('' if p.suffix == '.gz' else p.suffix): p for p in a.rglob('*') if p.is_file()}
    fb = {p.relative_to(b).with_suffix('' if p.suffix == '.gz' else p.suffix): p for p in b.rglob('*') if p.is_file()}
    bad = 0
    for k in sorted(fa.keys() | fb.keys()):
        x, y = (read(f[k]) if k in f else None for f in (fa, fb))
        if x == y: continue
        bad += 1
        if bad <= 40:
            print('differs:' if x is not None and y is not None else 'only in one:', k)
            if x is not None and y is not None and bad <= 12:
                for line in itertools.islice(difflib.unified_diff(x.decode().splitlines(), y.decode().splitlines(), lineterm='', n=0), 8): print('   ', line[:240])
    print(f'{len(fa.keys() | fb.keys())} outputs, {bad} differ')
    return 1 if bad else 0

if __name__ == '__main__':
    p = argparse.ArgumentParser(); s = p.add_subparsers(dest='what', required=True)
    t = s.add_parser('take'); t.add_argument('repo', type=Path); t.add_argument('out', type=Path); t.add_argument('-j', type=int, default=2); t.add_argument('--only')
    t = s.add_parser('measure'); t.add_argument('repo', type=Path)
    t = s.add_parser('diff'); t.add_argument('a', type=Path); t.add_argument('b', type=Path)
    o = p.parse_args()
    if o.what == 'diff': sys.exit(diff(o.a, o.b))
    repo = o.repo.resolve()
    python = repo / '.venv/bin/python'
    if python.exists() and Path(sys.prefix).resolve() != (repo / '.venv').resolve() and not os.environ.get('PINS_SAME'):
        os.environ['PINS_SAME'] = '1'; os.environ['PYTHONHASHSEED'] = '0'
        os.execv(str(python), [str(python), *sys.argv])
    if o.what == 'measure': measure(repo)
    else: take(repo, o.out.resolve(), o.j, o.only)
