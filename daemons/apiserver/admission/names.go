package admission

// This file has upstream's names of the plugins, for metrics.

func (*namespaceLifecycle) Name() string           { return "NamespaceLifecycle" }
func (*limitRanger) Name() string                  { return "LimitRanger" }
func (*serviceAccount) Name() string               { return "ServiceAccount" }
func (taintNodes) Name() string                    { return "TaintNodesByCondition" }
func (*topologyLabels) Name() string               { return "PodTopologyLabels" }
func (*priorityPlugin) Name() string               { return "Priority" }
func (tolerations) Name() string                   { return "DefaultTolerationSeconds" }
func (*defaultStorageClass) Name() string          { return "DefaultStorageClass" }
func (*defaultIngressClass) Name() string          { return "DefaultIngressClass" }
func (storageProtection) Name() string             { return "StorageObjectInUseProtection" }
func (*runtimeClass) Name() string                 { return "RuntimeClass" }
func (*nodeRestriction) Name() string              { return "NodeRestriction" }
func (*podSecurity) Name() string                  { return "PodSecurity" }
func (*claimResize) Name() string                  { return "PersistentVolumeClaimResize" }
func (*trustBundle) Name() string                  { return "ClusterTrustBundleAttest" }
func (*ownerReferences) Name() string              { return ownerReferencesName }
func (*Quota) Name() string                        { return "ResourceQuota" }
func (*certificateApproval) Name() string          { return "CertificateApproval" }
func (*certificateSigning) Name() string           { return "CertificateSigning" }
func (certificateSubjectRestriction) Name() string { return "CertificateSubjectRestriction" }
