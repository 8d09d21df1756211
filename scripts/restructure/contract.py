"""Lists what breaks the contract of question packages (all imports, TYPE_CHECKING and deferred too)."""
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent))
from graph import graph, sccs
repo=Path(sys.argv[1] if len(sys.argv)>1 else '.')
mods,g=graph(repo)
R='collscope.reports.'
def role(m):
    p=m[len(R):].split('.')
    if p[0]=='rendering': return 'rendering','rendering'
    if len(p)<2: return p[0],'package'
    n=p[1]
    for r in ('text','page','findings'):
        if n==r or n.endswith('_'+r): return p[0],r
    if n in ('plot','strip','evidence'): return p[0],'page'
    if n in ('words','build','formats','ci','perfetto'): return p[0],'text'
    return p[0],'answer'
bad=0
for m in sorted(g):
    if not m.startswith(R): continue
    q,r=role(m)
    for d in sorted(g[m]):
        if not d.startswith(R): continue
        dq,dr=role(d)
        why=None
        if r=='answer' and dr in ('text','page','findings','rendering'): why='answer -> words'
        elif r=='rendering' and dr in ('text','page','findings'): why='rendering -> question'
        elif q!=dq and dr in ('text','page','findings') and q!='report': why='words of another question'
        if why: bad+=1; print(f'{why}: {m[len(R):]} -> {d[len(R):]}  {sorted(str(a) for _,a in g[m][d])}')
print(bad,'violations;',len(sccs({k:set(v) for k,v in g.items()})),'circles')
for c in sccs({k:set(v) for k,v in g.items()}): print(sorted(c))
