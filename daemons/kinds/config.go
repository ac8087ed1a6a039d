package kinds

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func configMaps() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Resource: "configmaps", Singular: "configmap", ShortNames: []string{"cm"}, Namespaced: true,
		New: newOf[corev1.ConfigMap](), NewList: newOf[corev1.ConfigMapList](),
		Validate: adaptValidate(validateConfigMap), ValidateUpdate: adaptValidateUpdate(validateConfigMapUpdate),
		Columns: newColumns("Data", "Age"),
		Row: adaptRow(func(c *corev1.ConfigMap) []any {
			return []any{strconv.Itoa(len(c.Data) + len(c.BinaryData)), age(c.CreationTimestamp)}
		}),
	}
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, v := range c.Data {
		at := field.NewPath("data").Key(key)
		errs = append(errs, invalidErrors(at, key, validation.IsConfigMapKey(key))...)
		if _, ok := c.BinaryData[key]; ok {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(v)
	}
	for key, v := range c.BinaryData {
		errs = append(errs, invalidErrors(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(v)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	errs := validateConfigMap(c)
	if !valueOrZero(old.Immutable) {
		return errs
	}
	const text = "field is immutable when `immutable` is set"
	if !valueOrZero(c.Immutable) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), text))
	}
	if len(requireImmutable(c.Data, old.Data, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("data"), text))
	}
	if len(requireImmutable(c.BinaryData, old.BinaryData, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), text))
	}
	return errs
}

func secrets() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Secret"),
		Resource: "secrets", Singular: "secret", Namespaced: true,
		New: newOf[corev1.Secret](), NewList: newOf[corev1.SecretList](),
		Default: adapt(func(s *corev1.Secret) {
			setEmpty(&s.Type, corev1.SecretTypeOpaque)
			for key, text := range s.StringData {
				if s.Data == nil {
					s.Data = map[string][]byte{}
				}
				s.Data[key] = []byte(text)
			}
			s.StringData = nil
		}),
		Validate: adaptValidate(validateSecret), ValidateUpdate: adaptValidateUpdate(validateSecretUpdate),
		Fields:  adaptFields(func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} }),
		Columns: newColumns("Type", "Data", "Age"),
		Row: adaptRow(func(s *corev1.Secret) []any {
			return []any{string(s.Type), strconv.Itoa(len(s.Data)), age(s.CreationTimestamp)}
		}),
	}
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data, size := field.NewPath("data"), 0
	for key, v := range s.Data {
		errs = append(errs, invalidErrors(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(v)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	require := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(
				errs,
				field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""),
			)
		}
	case corev1.SecretTypeDockercfg:
		require(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		require(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			require(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		require(corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		require(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := append(validateSecret(s), requireImmutable(s.Type, old.Type, field.NewPath("type"))...)
	if !valueOrZero(old.Immutable) {
		return errs
	}
	const text = "field is immutable when `immutable` is set"
	if !valueOrZero(s.Immutable) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), text))
	}
	if len(requireImmutable(s.Data, old.Data, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("data"), text))
	}
	return errs
}

// trimSecretReferences reduces references to Secrets to their names, because they are in the account's namespace.
func trimSecretReferences(s *corev1.ServiceAccount) {
	for i, ref := range s.Secrets {
		s.Secrets[i] = corev1.ObjectReference{Name: ref.Name}
	}
}

func serviceAccounts() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		Resource: "serviceaccounts", Singular: "serviceaccount", ShortNames: []string{"sa"}, Namespaced: true,
		New: newOf[corev1.ServiceAccount](), NewList: newOf[corev1.ServiceAccountList](),
		Warnings:      adaptWarnings(serviceAccountWarnings),
		PrepareCreate: adapt(trimSecretReferences),
		PrepareUpdate: adaptUpdate(func(s, _ *corev1.ServiceAccount) { trimSecretReferences(s) }),
		Columns:       newColumns("Secrets", "Age"),
		Row: adaptRow(func(s *corev1.ServiceAccount) []any {
			return []any{strconv.Itoa(len(s.Secrets)), age(s.CreationTimestamp)}
		}),
		Subresources: []string{"token"},
	}
}

func serviceAccountWarnings(s, old *corev1.ServiceAccount) []string {
	var d warningList
	if _, ok := s.Annotations[enforceMountable]; !ok {
		return nil
	}
	if old != nil {
		if _, before := old.Annotations[enforceMountable]; before {
			return nil
		}
	}
	d.addf(
		field.NewPath("metadata", "annotations").Key(enforceMountable),
		"deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
	)
	return d
}

const enforceMountable = "kubernetes.io/enforce-mountable-secrets"
