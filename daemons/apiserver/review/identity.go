package review

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
)

func userInfo(u api.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

func tokenReview(tokens Verifier) Handler {
	return func(ctx context.Context, _ api.User, obj runtime.Object) (runtime.Object, error) {
		r := obj.(*authenticationv1.TokenReview).DeepCopy()
		if r.Namespace != "" {
			return nil, apierrors.NewBadRequest("namespace is not allowed on this type")
		}
		if r.Spec.Token == "" {
			return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
		r.Status = authenticationv1.TokenReviewStatus{}
		if tokens == nil {
			return r, nil
		}
		u, audiences, err := tokens.Verify(ctx, r.Spec.Token, r.Spec.Audiences)
		if err != nil {
			r.Status.Error = err.Error()
			return r, nil
		}
		u.Groups = append(u.Groups, api.GroupAuthenticated)
		r.Status.Authenticated, r.Status.User, r.Status.Audiences = true, userInfo(u), audiences
		return r, nil
	}
}

func selfSubject(_ context.Context, u api.User, obj runtime.Object) (runtime.Object, error) {
	r := obj.(*authenticationv1.SelfSubjectReview).DeepCopy()
	r.CreationTimestamp = metav1.Now()
	r.Status.UserInfo = userInfo(u)
	return r, nil
}
