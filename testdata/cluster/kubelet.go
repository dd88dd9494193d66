package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubelet plays the scheduler and the kubelets of all nodes: a pod that the
// API server has and no node runs is bound to a node, given a namespace and a
// server, probed, and reported; one that is being deleted is ended and its
// deletion confirmed. One worker does it, pod by pod, so that the same objects
// always end up on the same nodes.
type kubelet struct {
	cluster  *Cluster
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	cancel   context.CancelFunc
	done     sync.WaitGroup

	bound map[types.UID]string // bindings that the informer may not show yet; the worker's own

	mu      sync.Mutex
	pods    map[string]*sandbox // by namespace/name
	failing map[readinessFault]labels.Selector
	lastErr error
}

// readinessFault names a selector of one namespace.
type readinessFault struct{ namespace, selector string }

func startKubelet(c *Cluster) *kubelet {
	ctx, cancel := context.WithCancel(context.Background())
	k := &kubelet{
		cluster:  c,
		informer: informers.NewSharedInformerFactory(c.Client, 0).Core().V1().Pods().Informer(),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		cancel:   cancel,
		bound:    map[types.UID]string{},
		pods:     map[string]*sandbox{},
		failing:  map[readinessFault]labels.Selector{},
	}
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			k.queue.Add(key)
		}
	}
	k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, DeleteFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	k.done.Go(func() { k.informer.RunWithContext(ctx) })
	k.done.Go(func() { k.work(ctx) })
	return k
}

func (k *kubelet) waitSynced(ctx context.Context) error {
	return Until(ctx, "the pods are watched", func(context.Context) (string, error) {
		if !k.informer.HasSynced() {
			return "not yet", nil
		}
		return "", nil
	})
}

// stop ends every pod's server, without a word to the API server.
func (k *kubelet) stop() {
	k.cancel()
	k.queue.ShutDown()
	k.done.Wait()
	for _, s := range k.pods {
		s.close()
	}
}

func (k *kubelet) enqueueAll() {
	for _, key := range k.informer.GetIndexer().ListKeys() {
		k.queue.Add(key)
	}
}

func (k *kubelet) work(ctx context.Context) {
	for {
		key, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.reconcile(ctx, key); err != nil && ctx.Err() == nil {
			k.setError(fmt.Errorf("pod %s: %w", key, err))
			k.queue.AddRateLimited(key)
		} else {
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

func (k *kubelet) setError(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastErr = err
}

func (k *kubelet) reconcile(ctx context.Context, key string) error {
	obj, exists, err := k.informer.GetIndexer().GetByKey(key)
	if err != nil {
		return err
	}
	if !exists {
		k.remove(key, "")
		return nil
	}
	pod := obj.(*corev1.Pod)
	k.remove(key, pod.UID) // of a pod of that name that is gone
	switch node := k.cluster.node(pod.Spec.NodeName); {
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, key, pod)
	case pod.Spec.NodeName == "":
		return k.bind(ctx, pod)
	case node == nil:
		return nil // a node that the rig does not play
	default:
		return k.run(ctx, node, key, pod)
	}
}

// end stops the pod's server and confirms the deletion.
func (k *kubelet) end(ctx context.Context, key string, pod *corev1.Pod) error {
	k.remove(key, "")
	zero := int64(0)
	err := k.cluster.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // someone else was faster
	}
	return err
}

// remove ends what runs under the key, unless it is the pod with that UID.
func (k *kubelet) remove(key string, keep types.UID) {
	k.mu.Lock()
	s := k.pods[key]
	if s == nil || s.uid == keep {
		k.mu.Unlock()
		return
	}
	delete(k.pods, key)
	k.mu.Unlock()
	delete(k.bound, s.uid)
	s.close()
}

// run makes the pod's sandbox if there is none, probes it and reports.
func (k *kubelet) run(ctx context.Context, node *Node, key string, pod *corev1.Pod) error {
	k.mu.Lock()
	s := k.pods[key]
	k.mu.Unlock()
	if s == nil {
		var err error
		if s, err = newSandbox(node, pod); err != nil {
			return errors.Join(err, k.report(ctx, pod, notCreated(pod, err)))
		}
		k.mu.Lock()
		k.pods[key] = s
		k.mu.Unlock()
	}
	s.healthy.Store(!k.fails(pod))
	if message := s.probe(ctx, pod); message != "" {
		if err := k.recordUnhealthy(ctx, node, pod, message); err != nil {
			return err
		}
	}
	return k.report(ctx, pod, s.status(pod))
}

func (k *kubelet) fails(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for f, selector := range k.failing {
		if f.namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}

// sandbox returns what runs for a pod, or nil.
func (k *kubelet) sandbox(namespace, name string) *sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[namespace+"/"+name]
}
