package webhook

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/jsonpatch"
)

// auditNotes adds audit annotations about a call of a mutating webhook.
type auditNotes struct {
	a     *api.Admission
	hook  *hook
	round string // round and index, as in annotation keys
}

// auditNote is the value of an annotation.
type auditNote struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Mutated       *bool           `json:"mutated,omitempty"`
	Patch         jsonpatch.Patch `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

// recordMutated records whether the webhook changed the object.
func (n auditNotes) recordMutated(changed bool) {
	n.annotate("mutation", false, auditNote{Mutated: &changed})
}

// recordPatch records the patch, if the audit policy records request bodies.
func (n auditNotes) recordPatch(patch jsonpatch.Patch) {
	n.annotate("patch", true, auditNote{Patch: patch, PatchType: string(admissionv1.PatchTypeJSONPatch)})
}

func (n auditNotes) annotate(what string, contents bool, value auditNote) {
	if n.a.Origin == nil || !n.a.Origin.Audited(contents) {
		return
	}
	value.Configuration, value.Webhook = n.hook.configuration, n.hook.name
	if text, err := json.Marshal(value); err == nil {
		n.a.Origin.Annotate(what+".webhook.admission.k8s.io/"+n.round, string(text))
	}
}
