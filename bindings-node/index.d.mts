// The same for `import`, where there is a default export as well.
export * from './index.js'
import * as bandog from './index.js'
export default bandog
