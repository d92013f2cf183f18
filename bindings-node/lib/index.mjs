// One implementation for both module systems: a lock made by `import` and one made by `require` share classes,
// scopes and the default client.
import bandog from './index.cjs'

export const {
  connect, defaultClient, lock, locked, transport, Client, Lock, Hold, Events,
  LockError, LockTimeout, NotOwner, LockLost, ReleaseUnknown, NotReplicated, PermissionDenied, WrongType, ReadOnly,
  OutOfMemory, Unreachable, Protocol, ForkedHandle, Closed, InvalidName, InvalidLease, InvalidUrl, InvalidOption,
  BlockingInLoop,
} = bandog

export default bandog
