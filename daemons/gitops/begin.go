package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
)

// loaded is a fetched source.
type loaded struct {
	applier   Applier
	secrets   Secrets
	snapshot  Snapshot
	rendering rendering // inputs of its rendering
}

// release ends the use of the files.
func (l *loaded) release() {
	if l.snapshot.Release != nil {
		l.snapshot.Release()
	}
}

// fetch fetches a source. The caller releases what was fetched.
func (c *steps) fetch(ctx context.Context, s *Source) (*loaded, *failure) {
	a, err := c.Cluster.As(s.Namespace, s.Account())
	if err != nil {
		return nil, fail(reasonAccount, "act as service account "+s.Namespace+"/"+s.Account(), err)
	}
	secrets, f := readSecrets(ctx, a, s)
	if f != nil {
		return nil, f
	}
	snapshot, err := c.Fetcher.Fetch(ctx, s, secrets)
	if err != nil {
		f := fail(reasonFetch, "fetch "+s.Spec.URL, err)
		var permanent interface{ Permanent() bool }
		f.stalled = errors.As(err, &permanent) && permanent.Permanent()
		return nil, f
	}
	return &loaded{applier: a, secrets: secrets, snapshot: snapshot}, nil
}

// render renders a fetched source, and records the inputs.
func (c *steps) render(ctx context.Context, s *Source, l *loaded) (objects []Object, f *failure) {
	revision := l.snapshot.Revision
	if s.Spec.Decryption != nil {
		if err := c.decrypt(&l.snapshot, l.secrets.Decryption); err != nil {
			return nil, fail(ReasonDecryption, "decrypt "+revision, err)
		}
	}
	defer func() { f.redact(l.snapshot.Redact) }()
	reads, scopes := map[ObjectID]string{}, map[schema.GroupKind]Scope{}
	rendered, err := c.Renderer.Render(ctx, s, l.snapshot, recordingReader{l.applier, reads})
	if err != nil {
		return nil, fail(reasonRender, "render "+revision, err)
	}
	objects, err = prepare(s, rendered, func(gk schema.GroupKind) (Scope, error) {
		scope, err := l.applier.Scope(ctx, gk)
		scopes[gk] = scope
		return scope, err
	})
	if err != nil {
		return nil, fail(reasonRender, "render "+revision, err)
	}
	if key, ok := renderingKey(s, revision, l.secrets); ok {
		l.rendering = rendering{key, reads, scopes}
	}
	return objects, nil
}

// load fetches and renders a source.
func (c *steps) load(ctx context.Context, s *Source) (*loaded, []Object, *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.Spec.Limit())
	defer cancel()
	l, f := c.fetch(ctx, s)
	if f != nil {
		return nil, nil, f
	}
	defer l.release()
	objects, f := c.render(ctx, s, l)
	return l, objects, f
}

// loadChanged is like load, and returns the work instead if there is nothing to do.
func (c *steps) loadChanged(ctx context.Context, s *Source, e *entry, st *gitsource.Status) (l *loaded,
	objects []Object, unchanged *work, f *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.Spec.Limit())
	defer cancel()
	e.attempted = ""
	if l, f = c.fetch(ctx, s); f != nil {
		return nil, nil, nil, f
	}
	defer l.release()
	e.attempted = l.snapshot.Revision
	if unchanged = c.unchangedWork(ctx, s, e, st, l); unchanged == nil {
		objects, f = c.render(ctx, s, l)
	}
	return l, objects, unchanged, f
}

// decrypt replaces the files of a snapshot by decrypted ones.
func (c *steps) decrypt(snapshot *Snapshot, keys map[string][]byte) (err error) {
	if c.Decrypter == nil {
		return errors.New("this program decrypts no files")
	}
	snapshot.Files, snapshot.Redact, err = c.Decrypter.Decrypt(snapshot.Files, keys)
	return err
}

// begin fetches and renders a source, checks that all objects can be applied, and records in the inventory what will be
// applied. It applies nothing.
func (c *Controller) begin(ctx context.Context, s *Source, e *entry, st *gitsource.Status) (w *work, f *failure) {
	started := c.Clock.Now()
	l, objects, w, f := c.loadChanged(ctx, s, e, st)
	if f != nil || w != nil {
		return w, f
	}
	snapshot := l.snapshot
	defer func() { f.redact(snapshot.Redact) }()
	w = &work{
		cause:       causeOf(s),
		rendered:    rendered{revision: snapshot.Revision, redact: snapshot.Redact, rendering: l.rendering},
		comparison:  comparison{started: started, versions: map[identity]string{}},
		liveObjects: liveObjects{live: map[identity]*unstructured.Unstructured{}, existed: map[identity]bool{}},
		applier:     l.applier,
	}
	var err error
	if w.digest, err = digestOf(objects); err != nil {
		return nil, fail(reasonRender, "render "+snapshot.Revision, err)
	}
	if w.stages, err = stagesOf(objects); err != nil {
		return nil, fail(reasonRender, "order the objects", err)
	}
	if w.declared = e.digest != w.digest; e.digest == "" { // after a restart
		w.declared = st.AppliedRevision != w.revision || st.AppliedSpec != specDigest(&s.Spec)
	}
	previous, err := parseInventory(st.Inventory)
	if err != nil {
		return nil, fail(reasonStatus, "read the status", err)
	}
	if len(objects) == 0 && len(previous) > 0 && !s.Spec.AllowEmpty {
		return nil, fail(reasonEmpty, "render "+snapshot.Revision, fmt.Errorf("no objects are rendered, and %d were "+
			"applied before; nothing is deleted. If all of them are to be deleted, set spec.allowEmpty", len(previous)))
	}
	c.findSame(s, e, w)
	if f := c.check(ctx, s, w, objects); f != nil {
		return nil, f
	}
	w.obsolete = previous.without(idsOf(objects))
	return w, c.recordInventory(ctx, s, e, st, w, idsOf(objects).union(previous))
}

// check returns a failure if an object cannot be applied. Objects that were applied before need no check.
func (c *Controller) check(ctx context.Context, s *Source, w *work, objects []Object) *failure {
	all := len(objects)
	objects = w.remaining(objects)
	for id := range w.same {
		w.existed[id] = true
	}
	needsLive := w.declared || slices.ContainsFunc(objects, func(o Object) bool {
		policy, err := driftPolicy(s, o)
		return err != nil || policy == gitsource.DriftIgnore
	})
	if !needsLive || len(objects) == 0 {
		return nil
	}
	var entries inventory
	unknown := map[identity]bool{}
	for _, o := range objects {
		scope, err := w.applier.Scope(ctx, o.GroupVersionKind().GroupKind())
		if err != nil {
			return fail(reasonApply, "find out whether kinds are served", err)
		}
		if id := o.ID(); scope == ScopeUnknown {
			unknown[id.identity()] = true
		} else {
			entries = append(entries, id)
		}
	}
	lives, err := w.applier.Find(ctx, entries)
	if err != nil {
		return fail(reasonApply, "read the live objects", err)
	}
	for i, id := range entries {
		w.live[id.identity()], w.existed[id.identity()] = lives[i], lives[i] != nil
	}
	if !w.declared {
		return nil
	}
	var failed []string
	others := sync.OnceValue(func() []*Source { return c.others(s) })
	own := applied(s)
	for i, o := range objects {
		if err := checkOwner(s, o, w.live[o.ID().identity()], others); err != nil {
			failed = append(failed, o.position()+": "+err.Error())
		}
		// What the source applied before is its own, even if another client has changed the managed fields since.
		objects[i].Adopt, objects[i].Live = o.Adopt || own(o.ID()), w.live[o.ID().identity()]
	}
	if len(failed) == 0 {
		results, err := w.applier.Compare(ctx, objects)
		if err != nil {
			return fail(reasonApply, "compare the objects", err)
		}
		for i, r := range results {
			if r.Err != nil && !recreates(s, objects[i], r.Err) {
				failed = append(failed, objects[i].position()+": "+r.Err.Error())
			}
		}
	}
	return failedObjects(failed, all, "nothing is applied")
}

// recordInventory writes what will be applied into the status before it is applied. If the controller ends in between,
// the next one knows every object that may have been created.
func (c *Controller) recordInventory(ctx context.Context, s *Source, e *entry, st *gitsource.Status, w *work,
	all inventory) *failure {
	c.moveMu.Lock()
	defer c.moveMu.Unlock()
	st.RenderedRevision, st.Objects = w.revision, len(w.objects())
	st.Inventory, st.Pruning = all.strings(), w.obsolete.strings()
	if w.declared {
		setProgressing(st, s.Generation, c.Clock.Now(), "applies "+w.revision)
		st.ObservedGeneration = s.Generation
	}
	if err := c.writeStatus(ctx, s, e, st); err != nil {
		return fail(reasonStatus, "record the inventory", err)
	}
	return nil
}

// recreates reports whether an object is deleted and created again because of an error.
func recreates(s *Source, o Object, err error) bool {
	if !s.Spec.Recreate && o.GetAnnotations()[gitsource.RecreateAnnotation] != gitsource.Enabled {
		return false
	}
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "immutable")
}

// readSecrets returns the data of the Secrets that the source names.
func readSecrets(ctx context.Context, from Reader, s *Source) (secrets Secrets, f *failure) {
	read := func(name string, into *map[string][]byte) {
		if name == "" || f != nil {
			return
		}
		var err error
		if *into, err = readSecret(ctx, from, s.Namespace, name); err != nil {
			f = fail(reasonSecret, "read secret "+s.Namespace+"/"+name, err)
		}
	}
	read(s.Spec.Secret, &secrets.Credentials)
	if s.Spec.Verify != nil {
		read(s.Spec.Verify.Secret, &secrets.Signers)
	}
	if s.Spec.Decryption != nil {
		read(s.Spec.Decryption.Secret, &secrets.Decryption)
	}
	return secrets, f
}

// readSecret returns the data of a Secret.
func readSecret(ctx context.Context, from Reader, namespace, name string) (map[string][]byte, error) {
	o, err := from.Get(ctx, ObjectID{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("it does not exist")
	}
	return DataOf(o)
}
