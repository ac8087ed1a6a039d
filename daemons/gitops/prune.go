package gitops

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/config/gitsource"
)

// pruneAction is what happens to an object of the inventory that is no longer rendered.
type pruneAction string

const (
	pruneDelete  pruneAction = "delete"
	pruneWait    pruneAction = "wait"    // stays in the inventory
	pruneRelease pruneAction = "release" // leaves the inventory and is not deleted
)

// pruneDecision is the decision for one object.
type pruneDecision struct {
	id     ObjectID
	action pruneAction
	reason string // for pruneWait and pruneRelease
	uid    types.UID
}

// decidePrune returns what happens to an object that a source no longer renders at a revision. live is nil if the
// object does not exist. others are all sources except s.
func decidePrune(s *Source, revision string, id ObjectID, live *unstructured.Unstructured,
	others []*Source) pruneDecision {
	d := pruneDecision{id: id, action: pruneRelease}
	switch owner := ownerOf(live); {
	case live == nil:
		d.reason = "it does not exist"
	case live.GetDeletionTimestamp() != nil:
		d.action, d.reason = pruneWait, "it is being deleted"
	case owner == "" && !isManaged(live):
		d.reason = "another client has created it since"
	case owner != "" && owner != s.owner():
		d.reason = "it belongs to source " + owner + " now"
	case live.GetAnnotations()[gitsource.PruneAnnotation] == gitsource.Disabled:
		d.reason = "its annotation " + gitsource.PruneAnnotation + " is " + gitsource.Disabled
	case !s.Spec.Prunes():
		d.reason = "the source does not prune"
	default:
		if behind := claimant(s, revision, id, others); behind != nil {
			d.action = pruneWait
			d.reason = fmt.Sprintf("source %s may take it over: it has not rendered this revision", behind.owner())
			if inventoryHas(behind, id) {
				d.reason = fmt.Sprintf("source %s takes it over", behind.owner())
			}
			return d
		}
		d.action, d.uid = pruneDelete, live.GetUID()
	}
	return d
}

// claimant returns a source that contains an object, or that may contain it once it has rendered the revision. A commit
// may move an object from one source to another. Until the other source has rendered that commit, it is not known. A
// source waits for those of its own namespace and of kube-system only, since a tenant's source may never render.
func claimant(s *Source, revision string, id ObjectID, others []*Source) *Source {
	for _, o := range others {
		if o.Key() == s.Key() || o.DeletionTimestamp != nil {
			continue
		}
		if inventoryHas(o, id) && !listHas(o.Status.Pruning, id) {
			return o
		}
		isTrusted := o.Namespace == s.Namespace || o.Namespace == gitsource.Namespace
		if revision != "" && isTrusted && o.follows(s) && !o.Spec.Suspend && len(o.Spec.Problems()) == 0 &&
			o.Status.RenderedRevision != revision {
			return o
		}
	}
	return nil
}

// ownerOf returns the source that a live object belongs to, or "".
func ownerOf(live *unstructured.Unstructured) string {
	if live == nil {
		return ""
	}
	return live.GetAnnotations()[gitsource.SourceAnnotation]
}

// isManaged reports whether the controller has applied an object.
func isManaged(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == gitsource.Manager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

func inventoryHas(s *Source, id ObjectID) bool { return listHas(s.Status.Inventory, id) }

// listHas reports whether a list of a status contains an object, in whatever version.
func listHas(list []string, id ObjectID) bool {
	suffix := " " + id.Kind + " " + id.FullName()
	return slices.ContainsFunc(list, func(text string) bool {
		if !strings.HasSuffix(text, suffix) { // parsing costs more
			return false
		}
		other, err := ParseID(text)
		return err == nil && other.identity() == id.identity()
	})
}

// checkOwner returns an error if a source must not apply an object, because another source renders it. An object may be
// taken over from a source that no longer renders it or no longer exists. list returns all other sources.
func checkOwner(s *Source, o Object, live *unstructured.Unstructured, list func() []*Source) error {
	owner := ownerOf(live)
	if owner == "" || owner == s.owner() || !isManaged(live) {
		return nil
	}
	others := list()
	i := slices.IndexFunc(others, func(other *Source) bool { return other.owner() == owner })
	if i < 0 || others[i].DeletionTimestamp != nil {
		return nil
	}
	id := o.ID()
	if !inventoryHas(others[i], id) || listHas(others[i].Status.Pruning, id) {
		return nil
	}
	return fmt.Errorf("it belongs to source %s, which renders it too; remove it from one of the two", owner)
}
