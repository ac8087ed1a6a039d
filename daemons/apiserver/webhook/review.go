package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"clusterctl/daemons/api"
)

// review sends a write to a webhook and returns its response, validated. The two versions of a review differ in what a
// response may leave out.
func (s *set) review(
	ctx context.Context,
	w *matchedHook,
	a *api.Admission,
	mutating bool,
) (*admissionv1.AdmissionResponse, error) {
	if w.broken != nil {
		return nil, w.broken
	}
	if w.hook.version == "" {
		return nil, errors.New("it understands no version of an AdmissionReview that is known here")
	}
	request, err := newRequest(w, a)
	if err != nil {
		return nil, err
	}
	sent := &admissionv1.AdmissionReview{Request: request}
	sent.Kind, sent.APIVersion = "AdmissionReview", admissionv1.GroupName+"/"+w.hook.version
	answer := &admissionv1.AdmissionReview{}
	if err := s.o.Connector.Call(ctx, w.target, w.timeout, sent, answer); err != nil {
		return nil, fmt.Errorf(callFailedPrefix+": %w", err)
	}
	r := answer.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	if w.hook.version == "v1" {
		if answer.APIVersion != sent.APIVersion || answer.Kind != sent.Kind {
			return nil, fmt.Errorf("received invalid webhook response: expected webhook response of %s, "+
				"Kind=%s, got %s, Kind=%s", sent.APIVersion, sent.Kind, answer.APIVersion, answer.Kind)
		}
		if r.UID != request.UID {
			return nil, fmt.Errorf("received invalid webhook response: expected response.uid=%q, got %q", request.UID,
				r.UID)
		}
	}
	if err := checkPatch(r, w.hook.version == "v1", mutating); err != nil {
		return nil, fmt.Errorf("received invalid webhook response: %w", err)
	}
	for _, text := range r.Warnings {
		if a.Warn != nil {
			a.Warn(text)
		}
	}
	for key, value := range r.AuditAnnotations {
		if a.Origin != nil {
			a.Origin.Annotate(w.name+"/"+key, value)
		}
	}
	return r, nil
}

// callFailedPrefix is the beginning of the error for a webhook that could not be called.
const callFailedPrefix = "failed to call webhook"

func checkPatch(r *admissionv1.AdmissionResponse, strict, mutating bool) error {
	switch {
	case len(r.Patch) == 0 && r.PatchType == nil, !strict:
		return nil
	case !mutating && len(r.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutating:
		return errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) == 0:
		return errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case *r.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return nil
}

// newRequest returns the request that the webhook receives for a write.
func newRequest(w *matchedHook, a *api.Admission) (*admissionv1.AdmissionRequest, error) {
	attributes := w.attributes.Attributes
	user := authenticationv1.UserInfo{Username: a.User.Name, UID: a.User.UID, Groups: a.User.Groups}
	for key, value := range a.User.Extra {
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = value
	}
	kind, resource := metav1.GroupVersionKind(attributes.GetKind()), metav1.GroupVersionResource(
		attributes.GetResource(),
	)
	r := &admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(),
		Kind: metav1.GroupVersionKind(
			w.version.Kind,
		), Resource: metav1.GroupVersionResource(w.version.Resource), SubResource: a.Subresource,
		RequestKind: &kind, RequestResource: &resource, RequestSubResource: a.Subresource,
		Name: a.Name, Namespace: attributes.GetNamespace(), Operation: admissionv1.Operation(a.Operation),
		UserInfo: user, DryRun: &a.DryRun,
	}
	for _, part := range []struct {
		to  *runtime.RawExtension
		obj runtime.Object
	}{
		{&r.Object, w.attributes.VersionedObject.Object()}, {&r.OldObject, w.attributes.VersionedOldObject.Object()},
		{&r.Options, attributes.GetOperationOptions()},
	} {
		if part.obj == nil {
			continue
		}
		var err error
		if part.to.Raw, err = json.Marshal(part.obj); err != nil {
			return nil, fmt.Errorf("encode the object under review: %w", err)
		}
	}
	return r, nil
}

// deniedError returns the error for a write that a webhook refuses, in upstream's words.
func deniedError(name string, cause *metav1.Status) error {
	st := metav1.Status{}
	if cause != nil {
		st = *cause
	}
	if st.Code < http.StatusBadRequest {
		st.Code = http.StatusBadRequest
	}
	if st.Status == "" || st.Status == metav1.StatusSuccess {
		st.Status = metav1.StatusFailure
	}
	head := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case strings.TrimSpace(st.Message) != "":
		st.Message = head + ": " + st.Message
	case st.Reason != "":
		st.Message = head + ": " + string(st.Reason)
	default:
		st.Message = head + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: st}
}
