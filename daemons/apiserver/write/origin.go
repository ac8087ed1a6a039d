package write

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/request"
)

// origin is the request of a write, as admission plugins see it.
type origin struct {
	q         *request.Request
	operation string // CREATE, UPDATE, DELETE or CONNECT
	dryRun    bool
	deletion  *metav1.DeleteOptions // the options of a DELETE
}

// Annotate implements api.Origin.
func (o *origin) Annotate(key, value string) { o.q.Answer.Audit.Annotate(key, value) }

// Audited implements api.Origin.
func (o *origin) Audited(contents bool) bool { return o.q.Answer.Audit.IsRecorded(contents) }

// Verb implements api.Origin.
func (o *origin) Verb() string { return o.q.Verb }

// Options implements api.Origin. Like upstream, it reports a patch as the options of the create or update that it
// results in.
func (o *origin) Options() runtime.Object {
	var dry []string
	if o.dryRun {
		dry = []string{metav1.DryRunAll}
	}
	about := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind} }
	manager, validation := o.q.Query.Get("fieldManager"), o.q.Query.Get("fieldValidation")
	switch {
	case o.operation == "CONNECT":
		return nil
	case o.operation == "DELETE":
		options := &metav1.DeleteOptions{}
		if o.deletion != nil {
			options = o.deletion.DeepCopy()
		}
		options.TypeMeta = about("DeleteOptions")
		return options
	case o.operation == "CREATE":
		return &metav1.CreateOptions{
			TypeMeta:        about("CreateOptions"),
			DryRun:          dry,
			FieldManager:    manager,
			FieldValidation: validation,
		}
	}
	return &metav1.UpdateOptions{
		TypeMeta:        about("UpdateOptions"),
		DryRun:          dry,
		FieldManager:    manager,
		FieldValidation: validation,
	}
}
