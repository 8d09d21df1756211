"""Import graph of a tree (all imports, TYPE_CHECKING and deferred included)."""
import ast,sys
from pathlib import Path
def graph(root: Path):
    mods={}
    for p in sorted((root/'collscope').rglob('*.py')):
        rel=p.relative_to(root).with_suffix('')
        name='.'.join(rel.parts)
        if name.endswith('.__init__'): name=name[:-9]
        mods[name]=p
    out={}
    for name,p in mods.items():
        t=ast.parse(p.read_text())
        s={}
        tc=set()
        for n in ast.walk(t):
            if isinstance(n,ast.If) and 'TYPE_CHECKING' in ast.dump(n.test):
                for m in ast.walk(n): tc.add(id(m))
        top=set(id(x) for x in t.body)
        for n in ast.walk(t):
            names=[]
            if isinstance(n,ast.Import): names=[(a.name,None) for a in n.names]
            elif isinstance(n,ast.ImportFrom) and n.level==0:
                names=[]
                for a in n.names:
                    full=f'{n.module}.{a.name}'
                    names.append((full,None) if full in mods else (n.module,a.name)) if not (n.module=='collscope' and a.name.startswith('_')) else None
            for m,a in names:
                if m in mods and m!=name:
                    kind='T' if id(n) in tc else ('' if id(n) in top else 'D')
                    s.setdefault(m,set()).add((kind,a))
        out[name]=s
    return mods,out
def sccs(g):
    sys.setrecursionlimit(10000)
    idx={};low={};st=[];on=set();res=[];c=[0]
    def v(x):
        idx[x]=low[x]=c[0];c[0]+=1;st.append(x);on.add(x)
        for y in g[x]:
            if y not in idx: v(y);low[x]=min(low[x],low[y])
            elif y in on: low[x]=min(low[x],idx[y])
        if low[x]==idx[x]:
            comp=[]
            while True:
                y=st.pop();on.discard(y);comp.append(y)
                if y==x:break
            if len(comp)>1:res.append(comp)
    for x in g:
        if x not in idx:v(x)
    return res
if __name__=='__main__':
    mods,g=graph(Path(sys.argv[1]))
    print(len(mods),'modules')
    for c in sccs({k:set(v) for k,v in g.items()}):
        print('circle:',sorted(c))
        for m in sorted(c):
            for d in sorted(g[m]):
                if d in c: print('   ',m,'->',d,sorted(g[m][d],key=str))
    if len(sys.argv)>2:
        pre=sys.argv[2]
        for m in sorted(g):
            if m.startswith(pre):
                print(m)
                for d in sorted(g[m]):
                    if d.startswith(('collscope.analysis','collscope.reports')): print('     ',d.replace('collscope.',''),' '.join(sorted(k+(":" if k else "")+str(a) for k,a in g[m][d])))
