package gitops

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
)

// This file keeps rounds cheap in which nothing has changed. The controller records the version at which each object
// was as declared and healthy. While a watch shows the same version, the object is not read again. While also the
// revision and everything else that the rendering depends on are the same, the source is not rendered again.

const (
	// maxRecorded limits the objects of all sources whose versions are recorded. An object takes a few hundred bytes.
	maxRecorded = 200_000
	// verifyInterval is the longest time without a round that reads every object.
	verifyInterval = time.Hour
)

// recordedObject is an object that was as declared and healthy.
type recordedObject struct {
	id      ObjectID
	digest  objectDigest // of the declaration
	version string       // of the live object
}

// record is what a source's last successful round has found.
type record struct {
	rendering  rendering
	objects    map[identity]recordedObject
	isComplete bool      // it has all objects of the rendering
	verified   time.Time // beginning of the last round that read every object
}

// rendering identifies the inputs of a rendering.
type rendering struct {
	key    [sha256.Size]byte // digest of the source's identity and generation, the revision and the private keys
	reads  map[ObjectID]string
	scopes map[schema.GroupKind]Scope
}

// renderingKey returns the key of a rendering.
func renderingKey(s *Source, revision string, secrets Secrets) (key [sha256.Size]byte, ok bool) {
	text, err := json.Marshal([]any{s.UID, s.Namespace, s.Name, s.Generation, revision, secrets.Decryption})
	if err != nil { // text and bytes can be encoded
		return key, false
	}
	return sha256.Sum256(text), true
}

// recordingReader records the versions of the objects that a renderer reads.
type recordingReader struct {
	Reader
	reads map[ObjectID]string
}

// Get implements Reader.
func (r recordingReader) Get(ctx context.Context, id ObjectID) (*unstructured.Unstructured, error) {
	o, err := r.Reader.Get(ctx, id)
	if err == nil {
		r.reads[id] = VersionOf(o)
	}
	return o, err
}

// isCurrent reports whether a rendering with a key would have the same inputs.
func (r *rendering) isCurrent(ctx context.Context, a Applier, key [sha256.Size]byte) bool {
	if r.key != key {
		return false
	}
	for gk, before := range r.scopes {
		if now, err := a.Scope(ctx, gk); err != nil || now != before || now == ScopeUnknown {
			return false
		}
	}
	for id, before := range r.reads {
		if o, err := a.Get(ctx, id); err != nil || VersionOf(o) != before {
			return false
		}
	}
	return true
}

// unchangedWork returns the work of a source whose round has nothing to do, or nil if that is not certain.
func (c *steps) unchangedWork(ctx context.Context, s *Source, e *entry, st *gitsource.Status, l *loaded) *work {
	r := e.record
	switch {
	case r == nil || !r.isComplete || c.mustVerify(s, r):
		return nil
	case st.AppliedRevision != l.snapshot.Revision || st.RenderedRevision != l.snapshot.Revision ||
		st.AppliedSpec != specDigest(&s.Spec):
		return nil
	case st.ObservedGeneration != s.Generation || e.failures > 0 || e.digest == "":
		return nil
	case len(st.Inventory) != len(r.objects) || len(st.Pruning)+len(st.Drifted)+len(st.Failed) > 0:
		return nil
	}
	key, ok := renderingKey(s, l.snapshot.Revision, l.secrets)
	if !ok || !r.rendering.isCurrent(ctx, l.applier, key) {
		return nil
	}
	tracker, ok := l.applier.(Tracker)
	if !ok {
		return nil
	}
	ids := make([]ObjectID, 0, len(r.objects))
	for _, o := range r.objects {
		ids = append(ids, o.id)
	}
	for i, version := range tracker.Versions(ids) {
		if version == "" || version != r.objects[ids[i].identity()].version {
			return nil
		}
	}
	return &work{cause: causeOf(s), rendered: rendered{revision: l.snapshot.Revision, digest: e.digest},
		applier: l.applier, isUnchanged: true}
}

// mustVerify reports whether a round reads every object: if a user has requested it, and once in an hour.
func (c *steps) mustVerify(s *Source, r *record) bool {
	return s.Annotations[gitsource.SyncAnnotation] != s.Status.HandledSync ||
		c.Clock.Since(r.verified) >= verifyInterval
}

// findSame finds the objects of the work that are as they were recorded. They need no comparison.
func (c *steps) findSame(s *Source, e *entry, w *work) {
	w.same = nil
	r := e.record
	tracker, ok := w.applier.(Tracker)
	if !ok {
		return
	}
	objects := w.objects()
	if r == nil || w.verifies || c.mustVerify(s, r) {
		w.verifies = true
		tracker.Versions(idsOf(objects)) // begins the watches
		return
	}
	w.same = make(map[identity]bool, len(objects))
	for i, version := range tracker.Versions(idsOf(objects)) {
		id := objects[i].ID().identity()
		before, found := r.objects[id]
		if found && version != "" && before.version == version && before.digest == objects[i].digest {
			w.same[id] = true
		}
	}
}

// remaining returns the objects that are not known to be as they were recorded.
func (c *comparison) remaining(objects []Object) (rest []Object) {
	if len(c.same) == 0 {
		return objects
	}
	for _, o := range objects {
		if !c.same[o.ID().identity()] {
			rest = append(rest, o)
		}
	}
	return rest
}

// recordVersion records the version at which an object was found or made as declared.
func (c *comparison) recordVersion(o Object, live *unstructured.Unstructured) {
	if version := VersionOf(live); version != "" {
		c.versions[o.ID().identity()] = version
	}
}

// recordObjects records the objects of work that has ended: those that are as declared, and whose health was read at
// the same version.
func (c *Controller) recordObjects(e *entry, w *work) {
	before := e.record
	now := &record{rendering: w.rendering, objects: map[identity]recordedObject{}, verified: w.started}
	if before != nil && !w.verifies {
		now.verified = before.verified
	}
	all := w.objects()
	for _, o := range all {
		id := o.ID().identity()
		version := w.versions[id]
		switch state, _ := Health(w.live[id]); {
		case w.same[id]:
			now.objects[id] = before.objects[id]
		case version != "" && version == VersionOf(w.live[id]) && state == HealthCurrent:
			now.objects[id] = recordedObject{id: o.ID(), digest: o.digest, version: version}
		}
	}
	now.isComplete = len(now.objects) == len(all) && w.rendering.scopes != nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropRecord(e)
	if c.recorded+len(now.objects) <= maxRecorded {
		e.record = now
		c.recorded += len(now.objects)
	}
}

// dropRecord removes the record of a source. The caller holds mu.
func (c *Controller) dropRecord(e *entry) {
	if e != nil && e.record != nil {
		c.recorded -= len(e.record.objects)
		e.record = nil
	}
}
