package workload

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/kube/scheme"
	"clusterctl/provision/state"
)

// unchangedCache caches which objects were as declared at their last comparison. An object needs no dry run if its
// declaration and its live version are the same as then. A file keeps the results for the next run, in which the API
// may behave differently. So nothing is kept if there are webhooks or admission policies, or if the version of the API
// server changes. Nothing is kept for kinds that are defined in the cluster. Secrets are left out, because not even a
// digest of their content may be stored.
type unchangedCache struct {
	path     string                         // path of the file; empty means that nothing is kept
	apiBuild func() (git string, err error) // version of the API server

	// hasChangingDeclarations means that one object may be declared in several ways while the program runs. Otherwise
	// there is one declaration in a run.
	hasChangingDeclarations bool

	mu       sync.Mutex
	compared map[state.Object]string // marks of what was compared in this run
	// version of the API at the beginning of the run; empty means that nothing is kept
	api           string
	previous      map[string]string // digests from the file, by object
	current       map[string]string
	hasNewEntries bool // now has new entries
}

// Remember sets the file that keeps the results for later runs. Losing the file only costs time.
func (l *Live) Remember(path string) { l.unchanged.path = path }

// open reads the file, and checks whether its content may be used.
func (s *unchangedCache) open(ctx context.Context, l *Live) {
	if s.path == "" || s.current != nil {
		return
	}
	s.previous, s.current = map[string]string{}, map[string]string{}
	version, err := s.apiBuild()
	if err != nil || l.mayInterfere(ctx) {
		return
	}
	s.api = version
	if text, err := os.ReadFile(s.path); err == nil && json.Unmarshal(text, &s.previous) != nil {
		s.previous = map[string]string{}
	}
}

// interferingKinds are the kinds of objects that can change or refuse writes.
var interferingKinds = []string{
	"MutatingWebhookConfiguration",
	"ValidatingWebhookConfiguration",
	"MutatingAdmissionPolicyBinding",
	"ValidatingAdmissionPolicyBinding",
}

// mayInterfere reports whether webhooks or policies may affect writes, or whether that is unknown.
func (l *Live) mayInterfere(ctx context.Context) bool {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range interferingKinds {
		g.Go(func() error {
			mappings, err := l.mapper.RESTMappings(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: kind})
			if meta.IsNoMatchError(err) {
				return nil
			}
			if err != nil {
				return err
			}
			list, err := l.dynamic.Resource(mappings[0].Resource).
				List(ctx, metav1.ListOptions{Limit: 1})
				// Objects are the same in all versions.
			if err == nil && len(list.Items) > 0 {
				err = errMayInterfere
			}
			return err
		})
	}
	return g.Wait() != nil
}

var errMayInterfere = errors.New("others have a say in what is written")

func versionOf(live *unstructured.Unstructured) string {
	return string(live.GetUID()) + " " + live.GetResourceVersion()
}

// record records that an object is as declared.
func (s *unchangedCache) record(d Desired, live *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compared == nil || len(s.compared) >= maxUnchanged {
		s.compared = map[state.Object]string{}
	}
	s.compared[d.reference()] = s.mark(d, live)
	s.recordDigest(d, live)
}

// mark returns what identifies a comparison: the live version and, if declarations change, that of the declaration.
func (s *unchangedCache) mark(d Desired, live *unstructured.Unstructured) string {
	if !s.hasChangingDeclarations {
		return versionOf(live)
	}
	text, err := json.Marshal(d.Object.Object)
	if err != nil {
		return "" // matches nothing
	}
	sum := sha256.Sum256(text)
	return versionOf(live) + " " + string(sum[:])
}

// isUnchanged reports whether an object has not changed since it was recorded.
func (s *unchangedCache) isUnchanged(d Desired, live *unstructured.Unstructured) bool {
	if live.GetResourceVersion() == "" || live.GetUID() == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.compared[d.reference()]; ok {
		return at != "" && at == s.mark(d, live)
	}
	if s.api == "" {
		return false
	}
	sum := s.digest(d, live)
	if sum == "" || s.previous[cacheKey(d)] != sum {
		return false
	}
	s.current[cacheKey(d)] = sum
	return true
}

func (s *unchangedCache) recordDigest(d Desired, live *unstructured.Unstructured) {
	if s.api == "" || live.GetResourceVersion() == "" || live.GetUID() == "" {
		return
	}
	if sum := s.digest(d, live); sum != "" {
		s.current[cacheKey(d)], s.hasNewEntries = sum, true
	}
}

func cacheKey(d Desired) string {
	return strings.Join(
		[]string{d.Object.GetAPIVersion(), d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName()},
		" ",
	)
}

// digest returns a digest of the declaration, the live version and the API version, or "" for objects that must not be
// kept.
func (s *unchangedCache) digest(d Desired, live *unstructured.Unstructured) string {
	if !scheme.Scheme().Recognizes(d.Object.GroupVersionKind()) || d.Object.GetKind() == "Secret" {
		return ""
	}
	text, err := json.Marshal([]any{s.api, versionOf(live), d.Object.Object})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return base64.RawStdEncoding.EncodeToString(sum[:18])
}

// save writes the file if there are new entries. It keeps entries that were not compared, because a run may select only
// some objects.
func (s *unchangedCache) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == "" || !s.hasNewEntries {
		return
	}
	for name, sum := range s.previous {
		if _, seen := s.current[name]; !seen && len(s.current) < maxUnchanged {
			s.current[name] = sum
		}
	}
	text, err := json.Marshal(s.current)
	if err != nil {
		return
	}
	// An error is ignored; the objects are compared again next time.
	f, err := os.CreateTemp(filepath.Dir(s.path), ".settled-*")
	if err != nil {
		return
	}
	_, err = f.Write(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return
	}
	s.hasNewEntries = false
}

// maxUnchanged limits the number of entries, which include deleted objects.
const maxUnchanged = 100_000
