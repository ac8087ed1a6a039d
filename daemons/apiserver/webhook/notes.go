package webhook

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/jsonpatch"
)

// notes adds audit annotations about a call of a mutating webhook.
type notes struct {
	a     *api.Admission
	hook  *hook
	round string // round and index, as in annotation keys
}

// note is the value of an annotation.
type note struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Mutated       *bool           `json:"mutated,omitempty"`
	Patch         jsonpatch.Patch `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

// mutated records whether the webhook changed the object.
func (n notes) mutated(changed bool) {
	n.annotate("mutation", false, note{Mutated: &changed})
}

// patched records the patch, if the audit policy records request bodies.
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
