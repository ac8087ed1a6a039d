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

// settled caches which objects were as declared at their last comparison. An object needs no dry run if its declaration
// and its live version are the same as then. A file keeps the results for the next run, in which the API may behave
// differently. So nothing is kept if there are webhooks or admission policies, or if the version of the API server
// changes. Nothing is kept for kinds that are defined in the cluster. Secrets are left out, because not even a digest
// of their content may be stored.
type settled struct {
	path    string                         // path of the file; empty means that nothing is kept
	version func() (git string, err error) // version of the API server

	mu    sync.Mutex
	at    map[state.Object]string // resource versions compared in this run
	api   string                  // version of the API at the beginning of the run; empty means that nothing is kept
	was   map[string]string       // digests from the file, by object
	now   map[string]string
	wrote bool // now has new entries
}

// Remember sets the file that keeps the results for later runs. Losing the file only costs time.
func (l *Live) Remember(path string) { l.settled.path = path }

// open reads the file, and checks whether its content may be used.
func (s *settled) open(ctx context.Context, l *Live) {
	if s.path == "" || s.now != nil {
		return
	}
	s.was, s.now = map[string]string{}, map[string]string{}
	version, err := s.version()
	if err != nil || l.interfered(ctx) {
		return
	}
	s.api = version
	if text, err := os.ReadFile(s.path); err == nil && json.Unmarshal(text, &s.was) != nil {
		s.was = map[string]string{}
	}
}

// interfering are the kinds of objects that can change or refuse writes.
var interfering = []string{
	"MutatingWebhookConfiguration",
	"ValidatingWebhookConfiguration",
	"MutatingAdmissionPolicyBinding",
	"ValidatingAdmissionPolicyBinding",
}

// interfered reports whether webhooks or policies may affect writes, or whether that is unknown.
func (l *Live) interfered(ctx context.Context) bool {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range interfering {
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
				err = errInterfered
			}
			return err
		})
	}
	return g.Wait() != nil
}

var errInterfered = errors.New("others have a say in what is written")

func versionOf(live *unstructured.Unstructured) string {
	return string(live.GetUID()) + " " + live.GetResourceVersion()
}

// note records that an object is as declared.
func (s *settled) note(d Desired, live *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[state.Object]string{}
	}
	s.at[d.reference()] = versionOf(live)
	s.carry(d, live)
}

// still reports whether an object has not changed since it was recorded.
func (s *settled) still(d Desired, live *unstructured.Unstructured) bool {
	if live.GetResourceVersion() == "" || live.GetUID() == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.at[d.reference()]; known {
		return at == versionOf(live)
	}
	if s.api == "" {
		return false
	}
	sum := s.digest(d, live)
	if sum == "" || s.was[nameOf(d)] != sum {
		return false
	}
	s.now[nameOf(d)] = sum
	return true
}

func (s *settled) carry(d Desired, live *unstructured.Unstructured) {
	if s.api == "" || live.GetResourceVersion() == "" || live.GetUID() == "" {
		return
	}
	if sum := s.digest(d, live); sum != "" {
		s.now[nameOf(d)], s.wrote = sum, true
	}
}

func nameOf(d Desired) string {
	return strings.Join(
		[]string{d.Object.GetAPIVersion(), d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName()},
		" ",
	)
}

// digest returns a digest of the declaration, the live version and the API version, or "" for objects that must not be
// kept.
func (s *settled) digest(d Desired, live *unstructured.Unstructured) string {
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
func (s *settled) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == "" || !s.wrote {
		return
	}
	for name, sum := range s.was {
		if _, seen := s.now[name]; !seen && len(s.now) < mostSettled {
			s.now[name] = sum
		}
	}
	text, err := json.Marshal(s.now)
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
	s.wrote = false
}

// mostSettled limits the number of entries, which include deleted objects.
const mostSettled = 100_000
