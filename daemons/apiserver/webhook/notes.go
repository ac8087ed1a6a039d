package webhook

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/jsonpatch"
)

// notes tell the audit what a mutating webhook did when it was asked.
type notes struct {
	a     *api.Admission
	hook  *hook
	round string // round and place in the order, as keys have them
}

// note is the value of an annotation.
type note struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Mutated       *bool           `json:"mutated,omitempty"`
	Patch         jsonpatch.Patch `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

// mutated notes whether the object is another one now.
func (n notes) mutated(changed bool) {
	n.annotate("mutation", false, note{Mutated: &changed})
}

// patched notes the patch, where the audit is to have what requests say.
func (n notes) patched(patch jsonpatch.Patch) {
	n.annotate("patch", true, note{Patch: patch, PatchType: string(admissionv1.PatchTypeJSONPatch)})
}

func (n notes) annotate(what string, contents bool, value note) {
	if n.a.Origin == nil || !n.a.Origin.Audited(contents) {
		return
	}
	value.Configuration, value.Webhook = n.hook.of, n.hook.name
	if text, err := json.Marshal(value); err == nil {
		n.a.Origin.Annotate(what+".webhook.admission.k8s.io/"+n.round, string(text))
	}
}
