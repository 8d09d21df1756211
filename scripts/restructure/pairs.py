"""Records that mirror each other: pairs of structs that share most of their field names."""
import ast, sys
from pathlib import Path
repo=Path(sys.argv[1]); S={}
for p in sorted((repo/'collscope').rglob('*.py')):
    for n in ast.parse(p.read_text()).body:
        if isinstance(n, ast.ClassDef) and any('Struct' in ast.unparse(b) or 'NamedTuple' in ast.unparse(b) for b in n.bases):
            f=[x.target.id for x in n.body if isinstance(x, ast.AnnAssign)]
            S[f"{p.relative_to(repo)}:{n.lineno} {n.name}"]=(set(f),len(f))
items=sorted(S.items()); out=[]
for i,(a,(fa,na)) in enumerate(items):
    for b,(fb,nb) in items[i+1:]:
        c=len(fa&fb)
        if c>=3 and c/min(na,nb)>=0.6: out.append((c,c/min(na,nb),a,b,na,nb))
for c,r,a,b,na,nb in sorted(out,reverse=True): print(c,f'{r:.2f}',f'{na}/{nb}',a,'|',b)
