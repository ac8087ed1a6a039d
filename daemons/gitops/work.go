package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
)

// failure is why a source could not be reconciled. Its reason is that of the Ready condition.
type failure struct {
	reason  string
	stalled bool // only a change of the source helps
	err     error
	objects []string // failed objects, for the status
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// redact removes decrypted values from a failure. f and by may be nil.
func (f *failure) redact(by func(text string) string) {
	if f == nil || by == nil {
		return
	}
	f.err = errors.New(by(f.err.Error()))
	for i := range f.objects {
		f.objects[i] = by(f.objects[i])
	}
}

// Reasons of failures.
const (
	reasonSecret  = "SecretNotReadable"
	reasonFetch   = "FetchFailed"
	reasonRender  = "RenderFailed"
	reasonEmpty   = "NothingRendered"
	reasonApply   = "ApplyFailed"
	reasonHealth  = "HealthCheckFailed"
	reasonPrune   = "PruneFailed"
	reasonStatus  = "StatusNotWritten"
	reasonAccount = "AccountNotUsable"
)

// fail returns a failure. The reason of a ReasonError takes precedence over reason.
func fail(reason, attempt string, err error) *failure {
	var named *ReasonError
	if errors.As(err, &named) {
		reason = named.Reason
	}
	return &failure{reason: reason, err: fmt.Errorf("%s: %w", attempt, err)}
}

// work is a reconciliation of one source. It goes on over several rounds while objects become healthy.
type work struct {
	generation int64
	sync       string // value of SyncAnnotation
	requested  int64  // requests by webhooks when it began
	revision   string
	digest     string
	redact     func(string) string // removes decrypted values from messages; nil if there are none
	declared   bool                // the rendered objects differ from those that were applied last
	applier    Applier
	stages     []stage
	obsolete   inventory // entries of the inventory that are no longer rendered

	next    int       // index of the stage to apply
	began   time.Time // when the objects of the last applied stage began to become healthy
	polls   int       // health checks since then
	pruned  bool
	live    map[identity]*unstructured.Unstructured // objects as read or written in this round
	existed map[identity]bool                       // objects that existed at the beginning, as far as it matters
	drifted []string
	changed []string // objects that were created or changed
	revert  []string // objects whose drift was reverted
}

// isCurrent reports whether work that has begun still does what the source declares.
func (w *work) isCurrent(s *Source) bool {
	return w != nil && w.generation == s.Generation && w.sync == s.Annotations[gitsource.SyncAnnotation] &&
		w.requested == s.Requested
}

// objects returns all objects of the work.
func (w *work) objects() (all []Object) {
	for _, st := range w.stages {
		all = append(all, st.objects...)
	}
	return all
}

// healthPoll returns the pause before the next health check. It grows from a quarter of a second to 5 seconds.
func (w *work) healthPoll() time.Duration {
	pause := 250 * time.Millisecond << min(w.polls, 5)
	return min(pause, 5*time.Second)
}

// load fetches and renders a source.
func (c *Controller) load(ctx context.Context, s *Source) (snapshot Snapshot, objects []Object, a Applier,
	err *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.Spec.Limit())
	defer cancel()
	a, e := c.Cluster.As(s.Namespace, s.Account())
	if e != nil {
		return snapshot, nil, nil, fail(reasonAccount, "act as service account "+s.Namespace+"/"+s.Account(), e)
	}
	secrets, err := readSecrets(ctx, a, s)
	if err != nil {
		return snapshot, nil, nil, err
	}
	if snapshot, e = c.Fetcher.Fetch(ctx, s, secrets); e != nil {
		f := fail(reasonFetch, "fetch "+s.Spec.URL, e)
		var permanent interface{ Permanent() bool }
		f.stalled = errors.As(e, &permanent) && permanent.Permanent()
		return snapshot, nil, nil, f
	}
	if snapshot.Release != nil {
		defer snapshot.Release()
	}
	if s.Spec.Decryption != nil {
		if e = c.decrypt(&snapshot, secrets.Decryption); e != nil {
			return snapshot, nil, nil, fail(ReasonDecryption, "decrypt "+snapshot.Revision, e)
		}
	}
	defer func() { err.redact(snapshot.Redact) }()
	rendered, e := c.Renderer.Render(ctx, s, snapshot, a)
	if e != nil {
		return snapshot, nil, nil, fail(reasonRender, "render "+snapshot.Revision, e)
	}
	objects, e = prepare(s, rendered, func(gk schema.GroupKind) (Scope, error) { return a.Scope(ctx, gk) })
	if e != nil {
		return snapshot, nil, nil, fail(reasonRender, "render "+snapshot.Revision, e)
	}
	return snapshot, objects, a, nil
}

// decrypt replaces the files of a snapshot by decrypted ones.
func (c *Controller) decrypt(snapshot *Snapshot, keys map[string][]byte) (err error) {
	if c.Decrypter == nil {
		return errors.New("this program decrypts no files")
	}
	snapshot.Files, snapshot.Redact, err = c.Decrypter.Decrypt(snapshot.Files, keys)
	return err
}

// begin fetches and renders a source, checks that all objects can be applied, and records in the inventory what will be
// applied. It applies nothing.
func (c *Controller) begin(ctx context.Context, s *Source, e *entry, st *gitsource.Status) (w *work, f *failure) {
	snapshot, objects, a, f := c.load(ctx, s)
	if e.attempted = snapshot.Revision; f != nil {
		return nil, f
	}
	defer func() { f.redact(snapshot.Redact) }()
	w = &work{redact: snapshot.Redact, generation: s.Generation, sync: s.Annotations[gitsource.SyncAnnotation],
		requested: s.Requested, revision: snapshot.Revision,
		applier: a, live: map[identity]*unstructured.Unstructured{}, existed: map[identity]bool{}}
	var err error
	if w.stages, err = stagesOf(objects); err != nil {
		return nil, fail(reasonRender, "order the objects", err)
	}
	if w.digest, err = digestOf(objects); err != nil {
		return nil, fail(reasonRender, "render "+snapshot.Revision, err)
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
	if f := c.check(ctx, s, w, objects); f != nil {
		return nil, f
	}
	w.obsolete = previous.without(idsOf(objects))
	return w, c.recordInventory(ctx, s, e, st, w, idsOf(objects).union(previous))
}

// check returns a failure if an object cannot be applied. Objects that were applied before need no check.
func (c *Controller) check(ctx context.Context, s *Source, w *work, objects []Object) *failure {
	needsLive := w.declared || slices.ContainsFunc(objects, func(o Object) bool {
		policy, err := driftPolicy(s, o)
		return err != nil || policy == gitsource.DriftIgnore
	})
	if !needsLive || len(objects) == 0 {
		return nil
	}
	var known inventory
	unknown := map[identity]bool{}
	for _, o := range objects {
		scope, err := w.applier.Scope(ctx, o.GroupVersionKind().GroupKind())
		if err != nil {
			return fail(reasonApply, "find out whether kinds are served", err)
		}
		if id := o.ID(); scope == ScopeUnknown {
			unknown[id.identity()] = true
		} else {
			known = append(known, id)
		}
	}
	lives, err := w.applier.Find(ctx, known)
	if err != nil {
		return fail(reasonApply, "read the live objects", err)
	}
	for i, id := range known {
		w.live[id.identity()], w.existed[id.identity()] = lives[i], lives[i] != nil
	}
	if !w.declared {
		return nil
	}
	var failed []string
	others := sync.OnceValue(func() []*Source { return c.others(s) })
	for i, o := range objects {
		if err := checkOwner(s, o, w.live[o.ID().identity()], others); err != nil {
			failed = append(failed, o.position()+": "+err.Error())
		}
		// What the source applied before is its own, even if another client has changed the managed fields since.
		objects[i].Adopt = o.Adopt || inventoryHas(s, o.ID())
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
	return failedObjects(failed, len(objects), "nothing is applied")
}

// failedObjects returns the failure of some of several objects, or nil.
func failedObjects(failed []string, of int, consequence string) *failure {
	if len(failed) == 0 {
		return nil
	}
	return &failure{reason: reasonApply, objects: failed, err: fmt.Errorf("%d of %d objects are refused, %s: %s",
		len(failed), of, consequence, strings.Join(limitList(slices.Clone(failed)), "; "))}
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
